"""Bodies that no server accepts: too large, cut off, malformed. A real Caddy in front of the real api and streams.

Clients repeat a request that got 503, so none of these may be one, in whichever order sending and refusing happen.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from edge.caddy import numbers_above
from supervise.instance import load_instance
from tests.commands.conftest import short_folder
from tests.commands.running import processes_named, running
from tests.free_ports import free_port

LIMIT = 10 * 1024 * 1024
PATHS = ("/workspace", "/workspace/ws_1/exec")
# As many as made a few 503 of it before.
REPETITIONS = 12


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with short_folder() as folder:
        instance = load_instance(folder / "one", free_port())
        listed = processes_named(instance, "api", "streams", "edge")
        # Without credentials; nothing of these requests reaches a database.
        with running(instance, listed, dict.fromkeys(PATHS, 401)) as base:
            parts = urlsplit(base)
            yield str(parts.hostname), int(parts.port or 0)


@dataclass(frozen=True)
class Answer:
    status: int
    code: str


def send(address: tuple[str, int], *parts: bytes, end: bool = False) -> Answer:
    """The answer to a request that is sent as it is. `end`: this side of the connection ends after it."""
    with socket.create_connection(address, timeout=120) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            if end:
                connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused early; the answer is there to read
        got = b""
        while not (found := re.search(rb'"request_id": ?"[^"]*"}', got)):
            more = connection.recv(65536)
            assert more, f"the connection ended: {got!r}"
            got += more
    head, _, body = got[: found.end()].partition(b"\r\n\r\n")
    content = json.loads(body[body.index(b"{") :])
    assert content["success"] is False
    assert content["error"] == content["code"] or content["code"] == "unauthorized"
    return Answer(int(head.split()[1]), content["code"])


def head(path: str, framing: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{framing}\r\n\r\n".encode()


def chunked(path: str) -> bytes:
    return head(path, "Transfer-Encoding: chunked")


TOO_LARGE = Answer(413, "payload_too_large")
MALFORMED = Answer(400, "invalid_json")


@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_announces_too_much_is_413(address: tuple[str, int], path: str) -> None:
    for size in (*[LIMIT + 1, LIMIT + 200_000] * REPETITIONS, 5 * LIMIT):
        assert send(address, head(path, f"Content-Length: {size}"), bytes(size)) == TOO_LARGE


@pytest.mark.parametrize("path", PATHS)
def test_chunks_of_too_much_are_413(address: tuple[str, int], path: str) -> None:
    for size in (*[LIMIT + 1, LIMIT + 200_000] * REPETITIONS, 3 * LIMIT):
        assert send(address, chunked(path), b"%x\r\n" % size, bytes(size), b"\r\n0\r\n\r\n") == TOO_LARGE


@pytest.mark.parametrize("path", PATHS)
def test_a_body_of_the_limit_is_read(address: tuple[str, int], path: str) -> None:
    assert send(address, head(path, f"Content-Length: {LIMIT}"), bytes(LIMIT)).status == 401
    assert send(address, chunked(path), b"%x\r\n" % LIMIT, bytes(LIMIT), b"\r\n0\r\n\r\n").status == 401


def test_a_body_that_announces_too_much_is_413_on_every_path(address: tuple[str, int]) -> None:
    for path in ("/admin/", "/workspace/ws_1/overlay/filesx", "/admin/x/overlay/files", "/nothing", "/"):
        framing = f"Content-Length: 000{LIMIT + 1}"
        assert send(address, head(path, framing), bytes(LIMIT + 1)) == TOO_LARGE, path


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\n{}\r\n0\r\n\r\n",
        b"-2\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}XX\r\n0\r\n\r\n",
        b"\r\n{}\r\n0\r\n\r\n",
        b"f" * 20 + b"\r\n{}\r\n0\r\n\r\n",
        b"2;" + b"x" * 70_000 + b"\r\n{}\r\n0\r\n\r\n",
        b"2\n{}\n0\n\n",
        b"2\r\n{}\r\n0\r\nno trailer\r\n\r\n",
        b"2\r\n{}\r\n0\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
    ids=["letters", "negative", "longer", "empty", "huge", "extension", "line-feeds", "trailer", "long-trailer"],
)
def test_malformed_chunks_are_400(address: tuple[str, int], path: str, body: bytes) -> None:
    assert send(address, chunked(path), body, end=body.startswith(b"\r\n")) == MALFORMED


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("framing", "body"),
    [
        ("Content-Length: 120", b""),
        ("Content-Length: 120", b'{"name": "x"}'),
        ("Transfer-Encoding: chunked", b""),
        ("Transfer-Encoding: chunked", b'd\r\n{"name": "x"}\r\n'),
        ("Transfer-Encoding: chunked", b"d\r\n{"),
        ("Transfer-Encoding: chunked", b'd\r\n{"name": "x"}\r\n0\r\n'),
    ],
    ids=["nothing", "some", "no-chunk", "no-last-chunk", "within-a-chunk", "no-end"],
)
def test_a_body_that_ends_early_is_400(address: tuple[str, int], path: str, framing: str, body: bytes) -> None:
    assert send(address, head(path, framing), body, end=True) == MALFORMED


def test_slow_senders_hold_no_thread_of_the_api(address: tuple[str, int]) -> None:
    """More of them than the api has threads."""
    with ExitStack() as opened:
        for _ in range(100):
            connection = opened.enter_context(socket.create_connection(address, timeout=120))
            connection.sendall(head("/workspace", "Content-Length: 120") + b'{"name": ')
        assert send(address, head("/workspace", "Content-Length: 2"), b"{}").status == 401


@pytest.mark.parametrize("limit", [9, 10, 1024, 10485760, 99999, 19, 1990])
def test_the_expression_for_larger_numbers(limit: int) -> None:
    pattern = re.compile(f"^0*({numbers_above(limit)})$")
    for number in (0, 1, limit - 1, limit, limit + 1, limit + 10, limit * 2, limit * 10, 10**17):
        assert (pattern.search(str(number)) is not None) == (number > limit), number
        assert (pattern.search(f"00{number}") is not None) == (number > limit), number
    for text in ("", "-1", "x", "1e99", f"{limit + 1} "):
        assert pattern.search(text) is None
