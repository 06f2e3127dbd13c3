"""A body that ends early is 400 and nothing is done, through the edge and without it (wire contract, section 1)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.served.requests import addresses, cut_off, head
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance

# What follows the headers, and how the length is announced. Each is a whole JSON object, a part of one, or nothing.
WHOLE = b'{"config": {}}'
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
VARIANTS = {
    "length, nothing": b"Content-Length: 120\r\n\r\n",
    "length, part": b'Content-Length: 120\r\n\r\n{"config"',
    "length, an object": b"Content-Length: 120\r\n\r\n" + WHOLE,
    "length, an object and spaces": b"Content-Length: 120\r\n\r\n" + WHOLE + b" " * 90,
    "length, all but one": b"Content-Length: 15\r\n\r\n" + WHOLE,
    "chunked, nothing": CHUNKED,
    "chunked, part of a chunk": CHUNKED + b'e\r\n{"config"',
    "chunked, part of an object": CHUNKED + b'9\r\n{"config"\r\n',
    "chunked, an object": CHUNKED + b"e\r\n" + WHOLE + b"\r\n",
    "chunked, an object and half an end": CHUNKED + b"e\r\n" + WHOLE + b"\r\n0\r\n",
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def state_of(client: Api, box: str) -> dict[str, Any]:
    """What a request that is carried out would change."""
    details = client.call("GET", f"/workspace/{box}/details")["workspace"]
    return {
        "workspaces": sorted(row["id"] for row in client.rows()),
        "credentials": [
            {name: value for name, value in row.items() if name != "last_used_at"}  # also a refused request is a use
            for row in client.call("GET", "/credentials")["credentials"]
        ],
        "status": details["status"],
        "name": details["name"],
        "updated_at": details["updated_at"],
        "metadata": client.call("GET", f"/workspace/{box}/metadata")["metadata"],
        "activity": client.call("GET", "/workspace/activity")["history"],
        "files": client.call("GET", f"/workspace/{box}/overlay")["entries"],
    }


def assert_refused(status: int, body: Any, where: str) -> None:
    assert status == 400, body
    assert (body["success"], body["error"], body["code"]) == (False, "invalid_json", "invalid_json")


def headers_of(client: Api) -> dict[str, str]:
    return {name: client.http.headers[name] for name in ("X-Client-ID", "X-Client-Secret")}


@pytest.mark.parametrize("where", ["edge", "api"])
@every_variant
def test_no_route_of_the_api_carries_out_a_body_that_ends_early(
    served: TestInstance, client: Api, box: str, where: str, variant: str
) -> None:
    before = state_of(client, box)
    for method, path in (
        ("POST", "/workspace"),
        ("POST", f"/workspace/{box}/stop"),
        ("PUT", f"/workspace/{box}"),
        ("PUT", f"/workspace/{box}/metadata"),
        ("DELETE", f"/workspace/{box}"),
        ("POST", "/credentials"),
    ):
        sent = head(method, path, {**headers_of(client), "Content-Type": "application/json"}) + VARIANTS[variant]
        assert_refused(*cut_off(addresses(served)[where], sent), where)
    assert state_of(client, box) == before


@pytest.mark.parametrize("where", ["edge", "streams"])
@every_variant
def test_no_route_of_streams_carries_out_a_body_that_ends_early(
    served: TestInstance, client: Api, box: str, where: str, variant: str
) -> None:
    before = state_of(client, box)
    for path, kind in (
        ("exec", "application/json"),
        ("overlay/sync", "application/json"),
        ("overlay/files", "application/json"),
        ("overlay/files?path=/raw", "application/octet-stream"),
    ):
        sent = head("POST", f"/workspace/{box}/{path}", {**headers_of(client), "Content-Type": kind})
        status, body = cut_off(addresses(served)[where], sent + VARIANTS[variant])
        if status or where == "edge":  # uvicorn closes the connection as soon as its client has
            assert_refused(status, body, where)
    # A partial file is removed by the guest, when the server has closed the connection.
    until(lambda: state_of(client, box) == before, 30, "all is as before")


def names_of(client: Api, box: str, path: str) -> list[str]:
    found = client.call("GET", f"/workspace/{box}/overlay", params={"path": path})
    return [entry["name"] for entry in found["entries"]]


def test_a_large_upload_that_ends_early_leaves_the_old_file(served: TestInstance, client: Api, box: str) -> None:
    url, old = f"/workspace/{box}/overlay/files", b"old"
    query = {"path": "/cut-off/kept"}  # a folder of its own: other tests have files in this machine
    raw = {"Content-Type": "application/octet-stream"}
    client.call("POST", url, params=query, content=old, headers=raw)
    sent = (
        head("POST", f"{url}?path=/cut-off/kept", {**headers_of(client), **raw, "Content-Length": str(4 << 20)})
        + b"\r\n"
    )
    for where in ("edge", "streams"):
        cut_off(addresses(served)[where], sent + bytes(3 << 20))
        until(lambda: names_of(client, box, "/cut-off") == ["kept"], 30, f"the partial file of {where} is removed")
        found = client.http.get(url, params=query, headers={"Accept": "application/octet-stream"})
        assert found.content == old


@pytest.mark.parametrize("content", [WHOLE, b"", b'{"name": "' + b"x" * 100_000 + b'"}'])
def test_whole_chunked_bodies_are_carried_out(served: TestInstance, client: Api, box: str, content: bytes) -> None:
    def pieces() -> Any:
        yield content

    answer = client.http.put(f"/workspace/{box}", content=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status_code == (400 if b"xxx" in content else 200), answer.text
    if b"xxx" in content:
        assert answer.json()["code"] == "INVALID_NAME_LENGTH"
    assert "content-length" not in answer.request.headers


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/workspace", "/workspace/none/exec"])
def test_a_body_above_the_limit_is_413_however_it_is_sent(
    served: TestInstance, client: Api, path: str, chunked: bool
) -> None:
    size = served.settings.body_limit_bytes + 500_000

    def pieces() -> Any:
        for _ in range(10):
            yield bytes(size // 10)

    for _ in range(3):
        headers = {"Content-Type": "application/json", **({} if chunked else {"Content-Length": str(size)})}
        with httpx.Client(base_url=served.settings.base_url, headers=client.http.headers, timeout=120) as fresh:
            answer = fresh.post(path, content=pieces(), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large"), answer.text
