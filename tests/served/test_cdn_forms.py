"""Uploads by form and token into a whole instance: through the edge, of any length, broken off, killed, by a page."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.served.requests import addresses, connected, cut_off
from tests.served.test_browser import navigate
from tests.served.test_cdn_browser import listening
from tests.vm.browser import Browser
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance

DATA = os.urandom(3 << 20)
BEGUN = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n"
)
ENDED = b"\r\n--b--\r\n"
# A lease of 30 s, the sweep each 10 s, and some time for a host that is busy.
GIVEN_BACK = 90.0
RESERVED = "SELECT coalesce(sum(reserved_bytes + open_permits), 0) FROM cdn_pool"


def at_api(served: TestInstance, client: Api, **terms: Any) -> tuple[str, dict[str, str]]:
    """Return the address of forms on this host, and the headers that say so to the edge."""
    made = client.call("POST", "/cdn/token", 201, json=terms)
    host = urlsplit(made["apiUrl"]).netloc
    headers = {"Authorization": f"Bearer {made['token']}", "Host": host}
    return f"http://127.0.0.1:{served.instance.port}/api", headers


def head_of(headers: dict[str, str], more: str) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines += ["Content-Type: multipart/form-data; boundary=b", more]
    return ("POST /api HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.fixture
def require_nothing_kept(served: TestInstance) -> Callable[[float], None]:
    """Within so many seconds nothing is reserved, and no part is there, but for what was before the test."""

    def parts() -> set[str]:
        return {path.name for path in (served.state / "cdn/parts").iterdir()}

    reserved, former = served.query(RESERVED)[0][0], parts()

    def require(seconds: float) -> None:
        until(lambda: served.query(RESERVED)[0][0] <= reserved, seconds, "the reservation is given back")
        until(lambda: parts() <= former, seconds, "its bytes are removed")

    return require


def test_a_client_uploads_a_form_by_token_at_the_cdns_host(served: TestInstance, client: Api) -> None:
    made = client.call("POST", "/cdn/token", 201, json={"tag": "form"})
    api, host = made["apiUrl"], urlsplit(made["apiUrl"]).netloc
    base = f"http://127.0.0.1:{served.instance.port}/api"
    assert host.startswith("cdn.localhost")
    headers = {"Authorization": f"Bearer {made['token']}", "Host": host, "X-Request-ID": "form-1"}
    for path, data in (("/", DATA), ("", b"small"), ("/", b"")):
        answer = httpx.post(base + path, headers=headers, files={"file": ("a.bin", data)}, trust_env=False, timeout=120)
        assert answer.status_code == 201, answer.text
        assert answer.headers.get_list("x-request-id") == ["form-1"]
        assert answer.headers["access-control-allow-origin"] == "*"
        body = answer.json()
        assert (body["size"], body["filename"], body["recorded"]) == (len(data), "a.bin", True)
        got = httpx.get(f"http://127.0.0.1:{served.instance.port}{urlsplit(body['url']).path}", headers={"Host": host},
                        trust_env=False, timeout=120)  # fmt: skip
        assert (got.status_code, got.content) == (200, data)
    found = client.call("GET", "/cdn/files?tag=form")["data"]["files"]
    assert len(found) == 3
    assert client.call("GET", "/cdn/tags")["data"]["tags"] == ["form"]
    limits = httpx.get(base + "/limits", headers=headers, trust_env=False, timeout=120)
    assert (limits.status_code, limits.json()["success"]) == (200, True)
    asked = httpx.options(base + "/", headers={"Host": host}, trust_env=False, timeout=120)
    assert (asked.status_code, asked.headers["access-control-allow-headers"]) == (
        204, "Authorization, Content-Type, X-Request-ID",
    )  # fmt: skip
    for token, status in (("x", 401), (made["token"], 405)):
        refused = httpx.get(
            base + "/", headers=headers | {"Authorization": f"Bearer {token}"}, trust_env=False, timeout=120
        )
        assert refused.status_code == status
        assert refused.headers["access-control-allow-origin"] == "*"
    assert httpx.get(base + "/files", headers=headers, trust_env=False, timeout=120).status_code == 404
    assert api.endswith("/api")


@pytest.mark.parametrize("size", [0, 1, 65_537, 40 << 20])
def test_a_form_of_unknown_length_is_received_through_the_edge(
    served: TestInstance, client: Api, require_nothing_kept: Callable[[float], None], size: int
) -> None:
    base, headers = at_api(served, client)
    piece = os.urandom(100_000)

    def body() -> Iterator[bytes]:
        yield BEGUN
        yield from (piece[: min(len(piece), size - at)] for at in range(0, size, len(piece)))
        yield ENDED

    headers |= {"Content-Type": "multipart/form-data; boundary=b"}
    answer = httpx.post(base, headers=headers, content=body(), trust_env=False, timeout=120)
    assert answer.status_code == 201, answer.text
    data = (piece * (size // len(piece) + 1))[:size]
    row = served.query(f"SELECT size, sha256 FROM cdn_file WHERE id = '{answer.json()['file_id']}'")[0]
    assert row == (size, sha256(data).hexdigest())
    require_nothing_kept(20)


@pytest.mark.parametrize("announced", [f"Content-Length: {len(BEGUN + DATA + ENDED)}", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("sent", [100, 1_000_000, len(BEGUN + DATA) + 3])
def test_a_form_that_breaks_off_leaves_nothing(
    served: TestInstance, client: Api, require_nothing_kept: Callable[[float], None], announced: str, sent: int
) -> None:
    _, headers = at_api(served, client)
    part = (BEGUN + DATA + ENDED)[:sent]
    body = f"{len(part):x}\r\n".encode() + part + b"\r\n" if "chunked" in announced else part
    status, answer = cut_off(addresses(served)["edge"], head_of(headers, announced) + body)
    assert (status, answer["code"]) == (400, "invalid_json")
    require_nothing_kept(20)


def begun(served: TestInstance, headers: dict[str, str]) -> socket.socket:
    """A request whose form is half received."""
    connection = connected(addresses(served)["edge"])
    connection.sendall(head_of(headers, f"Content-Length: {1 << 30}") + BEGUN + DATA)
    parts = served.state / "cdn/parts"
    until(lambda: sum(part.stat().st_size for part in parts.iterdir()) > 1 << 20, 20, "it is received")
    assert served.query(RESERVED)[0][0] > 1 << 29
    return connection


def test_a_form_leaves_nothing_when_streams_is_killed(
    served: TestInstance, client: Api, require_nothing_kept: Callable[[float], None]
) -> None:
    _, headers = at_api(served, client)
    with begun(served, headers):
        served.kill("streams")
        require_nothing_kept(GIVEN_BACK)


def test_a_form_ends_with_the_credential_of_its_token(
    served: TestInstance, client: Api, require_nothing_kept: Callable[[float], None]
) -> None:
    made = client.call("POST", "/credentials", 201, json={"scope": "account"})
    own = Api(served.settings.base_url, made["credential"]["client_id"], made["client_secret"])
    _, headers = at_api(served, own)
    with begun(served, headers) as connection:
        client.call("DELETE", f"/credentials/{made['credential']['id']}")
        require_nothing_kept(20)
        assert answer_while_sending(connection).startswith(b"HTTP/1.1 401 ")


def answer_while_sending(connection: socket.socket) -> bytes:
    """Return the answer to a client that goes on: the edge passes an answer on once it has read more of the body."""
    connection.settimeout(1)
    for _ in range(40):
        try:
            return connection.recv(65536)
        except TimeoutError:
            connection.sendall(bytes(300_000))
    raise AssertionError("there is no answer")


def test_a_page_of_any_origin_uploads_a_form(served: TestInstance, client: Api, chromium: Browser) -> None:
    made = client.call("POST", "/cdn/token", 201, json={})
    send = f"""
        (async () => {{
            const form = new FormData();
            form.append("file", new Blob([new Uint8Array(1000000)]), "page.bin");
            form.append("more", "not used");
            const headers = {{Authorization: "Bearer {made["token"]}"}};
            const sent = await fetch("{made["apiUrl"]}/", {{method: "POST", body: form, headers}});
            const limits = await fetch("{made["apiUrl"]}/limits", {{headers}});
            const refused = await fetch("{made["apiUrl"]}", {{method: "POST", body: form}});
            return [sent.status, (await sent.json()).size, limits.status, refused.status, (await refused.json()).code];
        }})()"""
    with listening("<p>page</p>") as (_, outside):
        page = chromium.open("about:blank")
        navigate(page, f"{outside}/")
        assert page.value(send) == [201, 1_000_000, 200, 401, "unauthorized"]


def test_a_page_reads_that_streams_is_away(served: TestInstance, client: Api) -> None:
    base, headers = at_api(served, client)
    path = served.instance.run_dir / "streams.sock"
    away = path.rename(path.with_name("away.sock"))
    try:
        answer = httpx.post(base, headers=headers, files={"file": ("a", b"x")}, trust_env=False, timeout=120)
        asked = httpx.options(base, headers={"Host": headers["Host"]}, trust_env=False, timeout=120)
    finally:
        away.rename(path)
    assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert (asked.status_code, asked.headers["access-control-allow-methods"]) == (204, "GET, POST")
