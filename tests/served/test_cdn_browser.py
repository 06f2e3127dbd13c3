"""Hostile files from the CDN's host in a browser: no script of theirs runs, no cookie of the platform is sent."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from supervise.configuration import process_environment
from supervise.instance import ROOT
from tests.served.test_browser import logged_in, navigate, shows
from tests.vm.browser import Browser, browser
from tests.vm.client import Api
from tests.vm.instances import TestInstance

SECONDS = 3.0
# Whatever runs reports to this listener.
SVG = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="40" height="30"
 onload="fetch('{to}/onload')"><script>fetch('{to}/script'); document.cookie='x=1'</script>
<script href="{to}/script-file"/><image href="{to}/image" width="9" height="9"/>
<foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml" src="{to}/frame"/></foreignObject>
<a xlink:href="javascript:fetch('{to}/link')"><animate attributeName="href" values="javascript:alert(1)"/></a>
<rect width="40" height="30" fill="red"/></svg>"""
HTML = """<!doctype html><script>fetch('{to}/script'); document.title='ran'</script>
<img src="{to}/image" onerror="fetch('{to}/onerror')"><meta http-equiv="refresh" content="0;url={to}/refresh">"""


class Listener(http.server.ThreadingHTTPServer):
    """Of this host; `paths`: what was asked for, with the cookies."""

    paths: list[tuple[str, str]]


@contextmanager
def listening(page: str = "") -> Iterator[tuple[Listener, str]]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/favicon.ico":
                server.paths.append((self.path, self.headers.get("Cookie", "")))
            body = server.page.encode()  # type: ignore[attr-defined]
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = Listener(("127.0.0.1", 0), Handler)
    server.paths, server.page = [], page  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


PUBLISH = """
import sys, json
from cdn.facts import FileFacts
from cdn.services import processing
from cdn.delivery import file_url
from cdn.models import File
from cdn.storage import original_key, part_path, store_file
from cdn.types import file_type
file = File.objects.get(pk=sys.argv[1])
if file.status == "processing":
    found = file_type(sys.argv[2])
    claim = processing.processing_claim(file.pk)
    store_file().save(part_path(file.pk), original_key(file.pk, file.sha256))
    facts = FileFacts(found.kind, found.content_type, found.extension, file.size, file.sha256)
    file = processing.processing_publish(claim, facts, [])
print(json.dumps([file.status, file_url(file)]))
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made


def published(served: TestInstance, client: Api, data: bytes, content_type: str) -> str:
    """The address of an uploaded file, published by the worker, or in its place."""
    made = client.call(
        "POST", "/cdn/token", 201, json={"filename": "a", "size": len(data), "contentType": content_type}
    )
    answer = httpx.put(made["uploadUrl"], content=data, trust_env=False, timeout=120)
    assert answer.status_code in (201, 202), answer.text
    url = answer.json()["file"]["url"] or _published_here(served, made["fileId"], content_type)
    assert sha256(data).hexdigest()[:32] in url
    return str(url)


def _published_here(served: TestInstance, file_id: str, content_type: str) -> str:
    environment = process_environment(served.instance, served.settings)
    command = [sys.executable, "-c", f"import django; django.setup()\n{PUBLISH}", file_id, content_type]
    environment |= {"DJANGO_SETTINGS_MODULE": "config.settings", "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    status, url = json.loads(done.stdout)
    assert status == "active"
    return str(url)


@pytest.mark.parametrize(("content_type", "text"), [("image/svg+xml", SVG), ("text/html", HTML)])
def test_a_hostile_file_runs_nothing_and_gets_no_cookie(
    served: TestInstance, client: Api, chromium: Browser, content_type: str, text: str
) -> None:
    with listening() as (listener, to):
        url = published(served, client, text.format(to=to).encode(), content_type)
        page = logged_in(served, chromium, "/admin/accounts/account/")
        host = f"http://{urlsplit(url).netloc}"
        # Opened, framed and as an object: saved at most, and what is loaded of it runs nothing.
        page.call("Page.setDownloadBehavior", behavior="deny")
        page.call("Page.navigate", url=url)
        time.sleep(SECONDS)
        assert page.value("document.title") != "ran"
        cookies = page.call("Network.getCookies", urls=[url, host])["cookies"]
        assert cookies == []
        own = page.call("Network.getCookies", urls=[served.settings.base_url])["cookies"]
        assert any("sessionid" in cookie["name"] for cookie in own)
        frames = f"<iframe src='{url}'></iframe><object data='{url}'></object><embed src='{url}'>"
        with listening(frames) as (_, outside):
            framing = chromium.open("about:blank")
            framing.call("Page.setDownloadBehavior", behavior="deny")
            framing.call("Page.navigate", url=outside)
            time.sleep(SECONDS)
        assert listener.paths == []


def test_an_svg_is_a_picture_of_a_page(served: TestInstance, client: Api, chromium: Browser) -> None:
    with listening() as (listener, to):
        url = published(served, client, SVG.format(to=to).encode(), "image/svg+xml")
        with listening(f"<img id='it' src='{url}'>") as (_, outside):
            page = chromium.open("about:blank")
            navigate(page, f"{outside}/")
            shows(page, "document.querySelector('#it').complete")
            assert page.value("document.querySelector('#it').naturalWidth") == 40
        assert listener.paths == []


def test_a_page_reads_a_picture_of_the_cdn(served: TestInstance, client: Api, chromium: Browser) -> None:
    png = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0f01f0005"
        "0001ff56c7fd790000000049454e44ae426082"
    )
    url = published(served, client, png, "image/png")
    with listening("<p>page</p>") as (_, outside):
        page = chromium.open("about:blank")
        navigate(page, f"{outside}/")
        read = f"fetch({url!r}, {{headers: {{Range: 'bytes=0-3'}}}}).then(r => r.arrayBuffer()).then(b => b.byteLength)"
        assert page.value(read) == 4
