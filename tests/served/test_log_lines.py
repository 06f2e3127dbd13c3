"""What callers can cause as often as they like leaves a line in the log at most, and no traceback."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.served.requests import addresses, connected, head
from tests.vm.client import Api
from tests.vm.instances import TestInstance

TIMES = 25
# close() then resets the connection.
ABRUPT = struct.pack("ii", 1, 0)
LINE_BYTES = 300


@pytest.fixture(scope="module")
def sandbox(client: Api) -> Iterator[dict[str, Any]]:
    made = client.call("POST", "/sandbox", 201, json={"name": "Left", "image": "localhost/tiny:1"})["sandbox"]
    yield made
    client.call("DELETE", f"/sandbox/{made['id']}")


def logged_bytes(served: TestInstance) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in Path(served.instance.log_dir).glob("*.log")}


def asked(method: str, path: str, headers: dict[str, str], body: bytes, cut: int = 0) -> bytes:
    """A request; of its body `cut` bytes are missing."""
    sent = {**headers, "Content-Length": str(len(body)), "Connection": "close"}
    return head(method, path, sent) + b"\r\n" + body[: len(body) - cut]


def left(served: TestInstance, request: bytes, where: str, seconds: float) -> None:
    with connected(addresses(served)[where]) as connection:
        connection.sendall(request)
        time.sleep(seconds)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABRUPT)


def cut_upload(client: Api, sandbox: dict[str, Any], box: str) -> bytes:
    size = 300_000
    body = {"filename": "a.bin", "size": size, "contentType": "application/octet-stream"}
    url = client.call("POST", "/cdn/token", 201, json=body)["uploadUrl"]
    return asked("PUT", urlsplit(url).path, {}, bytes(size), cut=1000)


def cut_file(client: Api, sandbox: dict[str, Any], box: str) -> bytes:
    headers = {**credentials(client), "Content-Type": "application/octet-stream"}
    return asked("POST", f"/workspace/{box}/overlay/files?path=/tmp/a", headers, bytes(300_000), cut=1000)


def sandbox_call(route: str, /, **body: Any) -> Callable[[Api, dict[str, Any], str], bytes]:
    def make(client: Api, sandbox: dict[str, Any], box: str) -> bytes:
        headers = {"Authorization": f"Bearer {sandbox['token']}", "Content-Type": "application/json"}
        return asked("POST", f"/s/{sandbox['id']}/{route}", headers, json.dumps(body).encode())

    return make


def command(**body: Any) -> Callable[[Api, dict[str, Any], str], bytes]:
    def make(client: Api, sandbox: dict[str, Any], box: str) -> bytes:
        headers = {**credentials(client), "Content-Type": "application/json"}
        return asked("POST", f"/workspace/{box}/exec", headers, json.dumps(body).encode())

    return make


def event_stream(client: Api, sandbox: dict[str, Any], box: str) -> bytes:
    return asked("GET", f"/workspace/{box}/stats/stream", credentials(client), b"")


def nonsense(client: Api, sandbox: dict[str, Any], box: str) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: a\r\n\r\n"


def credentials(client: Api) -> dict[str, str]:
    return {name: client.http.headers[name] for name in ("X-Client-ID", "X-Client-Secret")}


CASES = {
    "an upload that is cut": cut_upload,
    "a file that is cut": cut_file,
    "a command": command(command=["sleep", "1"]),
    "a command that cannot start": command(command=["/none/such"]),
    "a command whose output is streamed": command(command=["yes"], stream=True),
    "a list": sandbox_call("files/list", dirPath="/none/such"),
    "a command in a sandbox": sandbox_call("terminal", command="sleep 1"),
    "git where there is none": sandbox_call("git/pull", path="/none/such"),
    "an event stream": event_stream,
    "no request": nonsense,
}


@pytest.mark.parametrize("where", ["edge", "streams"])
@pytest.mark.parametrize("case", list(CASES))
def test_a_client_that_leaves_is_a_line_at_most(
    served: TestInstance, client: Api, sandbox: dict[str, Any], box: str, case: str, where: str
) -> None:
    before = logged_bytes(served)
    for number in range(TIMES):
        left(served, CASES[case](client, sandbox, box), where, 0.02 * (number % 5))
    time.sleep(2.5)
    grown = {name: size - before.get(name, 0) for name, size in logged_bytes(served).items()}
    assert max(grown.values()) <= TIMES * LINE_BYTES, grown
    log = (Path(served.instance.log_dir) / "streams.log").read_bytes()[before["streams.log"] :]
    assert b"Traceback" not in log, log.decode()
