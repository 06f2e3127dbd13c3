"""Bodies that an application does not read, on keep-alive connections from the edge to the api server."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from config.drain_request_body import MAX_DRAINING
from supervise.instance import ROOT

LIMIT = 1 << 20
APPLICATION = f"""
from config.drain_request_body import DrainRequestBody

def answer(environ, start_response):
    if environ["PATH_INFO"] == "/read":
        assert len(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))) == int(environ["CONTENT_LENGTH"])
    if environ["PATH_INFO"].startswith("/measured"):
        assert environ["CONTENT_LENGTH"] == environ["PATH_INFO"].removeprefix("/measured")
        assert len(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))) == int(environ["CONTENT_LENGTH"])
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]

application = DrainRequestBody(answer, {LIMIT})
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of the api server with a minimal application."""
    folder = tmp_path_factory.mktemp("u")
    (folder / "tiny.py").write_text(APPLICATION)
    path = folder / "s"
    command = [str(Path(sys.executable).with_name("granian")), "--interface", "wsgi", "tiny:application"]
    command += ["--blocking-threads", str(MAX_DRAINING + 2)]
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT / 'platform'}"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--uds", str(path)], env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while not is_listening(path):
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        yield path
    finally:
        process.terminate()
        process.wait(120)


def is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture
def connection(server: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(20)
        made.connect(str(server))
        yield made


def exchange(connection: socket.socket, path: str, size: int) -> bytes:
    """The response to a request whose body is sent some time after its headers."""
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
    time.sleep(0.1)
    connection.sendall(bytes(size))
    return read_response(connection)


def read_response(connection: socket.socket) -> bytes:
    got = b""
    while not got.endswith(b"\r\n\r\nok"):
        more = connection.recv(4096)
        assert more, f"the server ended the connection: {got!r}"
        got += more
    assert got.startswith(b"HTTP/1.1 200")
    return got.lower()


@pytest.mark.parametrize("size", [1, 10_000, LIMIT])
def test_a_connection_stays_open_after_an_unread_body(connection: socket.socket, size: int) -> None:
    for path in ("/unread", "/read", "/unread"):
        assert b"connection: close" not in exchange(connection, path, size)


def test_an_unread_body_above_the_limit_closes_the_connection(connection: socket.socket) -> None:
    head = f"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: {LIMIT + 1}\r\n\r\n"
    connection.sendall(head.encode())
    assert b"connection: close" in read_response(connection)


def chunked(path: str, *sizes: int) -> bytes:
    pieces = b"".join(b"%x\r\n%s\r\n" % (size, bytes(size)) for size in sizes)
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + pieces + b"0\r\n\r\n"


@pytest.mark.parametrize("sizes", [(5,), (1000, 70_000, 3), (LIMIT,)])
def test_a_chunked_body_gets_a_content_length_and_the_connection_stays_open(
    connection: socket.socket, sizes: tuple[int, ...]
) -> None:
    for path in ("/measured", "/unread", "/measured"):
        connection.sendall(chunked(f"{path}{sum(sizes)}", *sizes))
        assert b"connection: close" not in read_response(connection)


def test_a_chunked_body_above_the_limit_closes_the_connection(connection: socket.socket) -> None:
    connection.sendall(chunked(f"/measured{LIMIT + 1}", LIMIT, 1))
    assert b"connection: close" in read_response(connection)


def test_slow_senders_occupy_a_limited_number_of_threads(server: Path) -> None:
    head = b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
    with ExitStack() as opened:
        connections = [opened.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(MAX_DRAINING + 1)]
        for connection in connections:
            connection.settimeout(20)
            connection.connect(str(server))
            connection.sendall(head)
        answered, _, _ = select.select(connections, [], [], 20)
        (refused,) = answered
        assert b"connection: close" in read_response(refused)
        for connection in connections:
            if connection is not refused:
                connection.sendall(bytes(10))
                assert b"connection: close" not in read_response(connection)
