"""The edge: these routes go to streams, and what the edge itself refuses below them has their form. A real Caddy."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest

from supervise.instance import Instance, load_instance
from tests.commands.conftest import short_folder
from tests.commands.running import processes_named, running
from tests.commands.test_edge import open_edge
from tests.free_ports import free_port

PATH = "/v1/blurs/generate"


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    """Of an edge in front of the real process `streams`; an unknown key asks no database."""
    with short_folder() as folder:
        instance = load_instance(folder / "one", free_port())
        with running(instance, processes_named(instance, "streams", "edge"), {PATH: 401}) as base:
            yield place(base)


def place(base: str) -> tuple[str, int]:
    parts = urlsplit(base)
    return str(parts.hostname), int(parts.port or 0)


def exchange(address: tuple[str, int], sent: bytes, *, end: bool = False) -> tuple[int, dict[str, str], Any]:
    """Status, headers and body of the answer to these bytes. `end`: this side of the connection ends after them."""
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(sent)
        if end:
            connection.shutdown(socket.SHUT_WR)
        answer = HTTPResponse(connection)
        answer.begin()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, json.loads(answer.read())


def request(path: str, *headers: str, body: bytes = b"", method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def assert_form(found: tuple[int, dict[str, str], Any], status: int, code: str) -> None:
    assert found[0] == status, found
    assert set(found[2]) == {"error"}
    assert set(found[2]["error"]) == {"code", "message", "details"}
    assert (found[2]["error"]["code"], found[2]["error"]["details"]) == (code, {})
    assert found[1]["content-type"] == "application/json"
    assert found[1]["x-request-id"]


@pytest.mark.parametrize("path", [PATH, "/v1/blurs", "/v1/blurs/x/y"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_these_paths_reach_streams(address: tuple[str, int], path: str, method: str) -> None:
    found = exchange(address, request(path, "Content-Length: 2", body=b"{}", method=method))
    assert_form(found, 401, "INVALID_API_KEY")
    assert found[1]["x-ratelimit-remaining"] == "0"


CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (["Content-Length: 120"], b'{"prompt": "x"}'),
        (["Content-Length: 120"], b""),
        ([CHUNKED], b'9\r\n{"prompt"\r\n'),
        ([CHUNKED], b'e\r\n{"prompt"'),
        ([CHUNKED], b"zz\r\n"),
    ],
)
def test_a_body_that_ends_early_is_refused_in_their_form(
    address: tuple[str, int], headers: list[str], body: bytes
) -> None:
    assert_form(exchange(address, request(PATH, *headers, body=body), end=True), 400, "INVALID_REQUEST")


def test_a_body_that_announces_too_much_is_refused_in_their_form(address: tuple[str, int]) -> None:
    body = b"x" * (10 << 20) + b"x"
    assert_form(exchange(address, request(PATH, f"Content-Length: {len(body)}", body=body)), 413, "INVALID_REQUEST")
    chunks = b"a00001\r\n" + body + b"\r\n0\r\n\r\n"
    assert_form(exchange(address, request(PATH, CHUNKED, body=chunks)), 413, "INVALID_REQUEST")


@pytest.fixture
def alone() -> Iterator[tuple[Instance, str]]:
    """An edge whose servers are away."""
    with short_folder() as folder:
        instance = load_instance(folder / "edge", free_port())
        with open_edge(instance) as base:
            for name in ("api", "streams"):
                (instance.run_dir / f"{name}.sock").unlink()
            yield instance, base


def test_where_streams_is_away_the_edge_says_so_in_their_form(alone: tuple[Instance, str]) -> None:
    found = exchange(place(alone[1]), request(PATH, "Content-Length: 2", body=b"{}"))
    assert_form(found, 503, "GENERATION_FAILED")
    assert found[1]["retry-after"] == "1"
    other = exchange(place(alone[1]), request("/workspace", "Content-Length: 2", body=b"{}"))
    assert other[2]["error"] == "service_unavailable"
