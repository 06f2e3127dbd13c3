"""A development server inside a real machine: its page, hot reload, events and uploads, as a program reaches it by the
runtime's proxy and a browser by a private link; and what a proxied page may do in a browser.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.vm.browser import Page, browser
from tests.vm.client import Api, until
from tests.vm.conftest import Witness
from tests.vm.instances import TestInstance
from tests.vm.sleep_command import SleepCommand
from tests.vm.web import PORT, Site, make_site

pytestmark = [pytest.mark.vm, pytest.mark.host]
EVENTS = 5
CLOSED = 3
BODY = os.urandom(300_000)
# Values of the page's origin; a page of an origin of its own gets an error in their place.
STEAL = """(() => { const seen = {origin: self.origin};
for (const [name, read] of Object.entries({cookie: () => document.cookie, stored: () => localStorage.length,
  worker: () => navigator.serviceWorker.register('/r/sw.js') && 'begun',
  set: () => { document.cookie = 'planted=1; path=/'; return document.cookie; }}))
  try { seen[name] = String(read()); } catch (error) { seen[name] = error.name; }
return seen; })()"""


@pytest.fixture(scope="module")
def site(instance: TestInstance, api: Api, witness: Witness) -> Iterator[Site]:
    yield make_site(api, instance.settings.base_url)
    api.delete_all(keep=[witness.id])


@pytest.fixture(scope="module")
def runtime(api: Api, site: Site) -> dict[str, Any]:
    found: dict[str, Any] = api.call("POST", f"/workspace/{site.id}/runtime-api-access/enable")
    return found


def headers_of(runtime: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {runtime['token']}"}


async def first_events(client: httpx.AsyncClient, url: str) -> list[str]:
    found: list[str] = []
    async with client.stream("GET", url) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        async for line in answer.aiter_lines():
            found += [line] if line else []
            if len(found) == EVENTS:
                break
    return found


@pytest.mark.parametrize("how", ["path", "header"])
def test_a_program_uses_it_by_the_proxy(runtime: dict[str, Any], how: str) -> None:
    headers = headers_of(runtime)
    base = f"{runtime['url']}/proxy/{PORT}" if how == "path" else f"{runtime['url']}/proxy"
    if how == "header":
        headers["X-Proxy-Target"] = f"127.0.0.1:{PORT}"

    async def work() -> None:
        async with httpx.AsyncClient(headers=headers, timeout=60, trust_env=False) as client:
            assert "hello from inside" in (await client.get(f"{base}/")).text
            head = (await client.get(f"{base}/head?a=1")).text
            assert head.startswith("GET /head?a=1 HTTP/1.1\r\n")
            assert runtime["token"] not in head
            assert (await client.post(f"{base}/echo", content=BODY)).content == BODY
            expected = [f"data: {number}" for number in range(1, EVENTS + 1)]
            assert await first_events(client, f"{base}/events") == expected
        url = f"{base.replace('http://', 'ws://', 1)}/ws"
        async with connect(url, additional_headers=headers, proxy=None, compression=None) as socket:
            for message in ("reload", b"\0" * 1000):
                await socket.send(message)
                assert await socket.recv() == message

    asyncio.run(asyncio.wait_for(work(), 120))


def test_a_browser_uses_it_by_a_private_link(api: Api, site: Site) -> None:
    path = f"/workspace/{site.id}/public-access/{PORT}"
    assert api.call("PATCH", path, json={"access": "private"})["port"]["access"] == "private"
    link = api.call("POST", f"{path}/links", 201, json={"ttl_seconds": 600})["link"]
    with browser() as chromium:
        page = chromium.open(link["url"])
        assert "__link" not in page.value("location.href")
        assert page.value("document.getElementById('said').textContent") == "hello from inside"
        until(lambda: page.value("window.echoes") > 3, 30, "the WebSocket speaks")
        assert page.value(RECEIVED.replace("EVENTS", str(EVENTS))) == [str(number) for number in range(1, EVENTS + 1)]
        assert page.value(UPLOADED) == [200, 300_000]
        api.call("DELETE", f"{path}/links/{link['id']}")
        until(lambda: page.value("socket.readyState") == CLOSED, 30, "the WebSocket ends with the link")
        assert page.value("fetch('/ok').then((answer) => answer.status)") == 401
    api.call("PATCH", path, json={"access": "public"})


RECEIVED = """new Promise((done) => { const found = [], source = new EventSource('/events');
source.onmessage = (event) => { found.push(event.data);
  if (found.length == EVENTS) { source.close(); done(found); } }; })"""
UPLOADED = """fetch('/echo', {method: 'POST', body: new Uint8Array(300000)}).then(async (answer) =>
  [answer.status, (await answer.arrayBuffer()).byteLength])"""


def test_a_proxied_page_neither_reads_nor_sets_anything_of_the_origin(
    instance: TestInstance, api: Api, runtime: dict[str, Any]
) -> None:
    base = instance.settings.base_url
    with browser() as chromium:
        before = chromium.open(f"{base}/docs")
        before.value("document.cookie = 'mine=secret; path=/'")
        before.value("localStorage.setItem('mine', 'secret')")
        page = chromium.open("about:blank")
        page.call("Network.enable")
        page.call("Network.setExtraHTTPHeaders", headers=headers_of(runtime))
        navigate(page, f"{runtime['url']}/proxy/{PORT}/")
        assert page.value("document.getElementById('said').textContent") == "hello from inside"
        refused = dict.fromkeys(("cookie", "stored", "set", "worker"), "SecurityError")
        assert page.value(STEAL) == {"origin": "null", **refused}
        for target in ("/workspace", "/docs", "/r/health"):
            assert (
                page.value(f"fetch('{base}{target}', {{credentials: 'include'}}).then(() => 'read', () => 'no')")
                == "no"
            )
        assert before.value("document.cookie") == "mine=secret"
        assert before.value("localStorage.getItem('mine')") == "secret"


def navigate(page: Page, url: str) -> None:
    page.call("Page.navigate", url=url)
    until(lambda: page.value("document.readyState") == "complete" and page.value("location.href") == url, 30, url)


def test_proxied_connections_end_with_a_sleep_a_disabled_runtime_and_a_deleted_workspace(
    api: Api, site: Site, sleep_command: SleepCommand
) -> None:
    path = f"/workspace/{site.id}/runtime-api-access"
    disable = partial(api.call, "POST", f"{path}/disable")

    async def work() -> None:
        for end, status in (
            (partial(sleep_command.sleep, site.id), 200),
            (disable, 403),
            (partial(api.delete, site.id), 401),
        ):
            runtime = await asyncio.to_thread(api.call, "POST", f"{path}/enable")
            url, headers = f"{runtime['url']}/proxy/{PORT}/", headers_of(runtime)
            async with httpx.AsyncClient(headers=headers, timeout=60, trust_env=False) as client:
                async with connect(f"ws{url[4:]}ws", additional_headers=headers, proxy=None) as socket:
                    await socket.send("here")
                    assert await socket.recv() == "here"
                    assert (await client.get(url)).status_code == 200  # its connection is kept for the next request
                    await asyncio.to_thread(end)
                    with pytest.raises(ConnectionClosed):
                        await asyncio.wait_for(socket.recv(), 60)
                assert (await client.get(url)).status_code == status

    asyncio.run(asyncio.wait_for(work(), 300))
