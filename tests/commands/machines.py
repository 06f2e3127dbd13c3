"""A real Caddy in front of stub servers that route to a program, which stands for one in a machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from edge.caddy import caddyfile
from edge.route_cache import route_cache_folder, this_second
from supervise.instance import Instance, load_instance
from tests.commands.conftest import CADDY, short_folder
from tests.commands.test_edge import Server, echo_after_upgrade, wait_for_edge
from tests.free_ports import free_port

HASH = "a" * 20
# Seconds; longer than any of these tests takes.
LONG = 120


# What a server answers to a path with headers: status, headers, content.
Answer = Callable[[str, dict[str, str]], tuple[int, dict[str, str], bytes]]


@dataclass
class Platform:
    """The responses of the stubs of api and streams, and the requests that they received."""

    answers: dict[str, tuple[int, dict[str, str]] | Answer] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str], str]] = field(default_factory=list)

    def requests_of(self, server: str) -> list[tuple[str, dict[str, str], str]]:
        return [(path, headers, body) for name, path, headers, body in self.requests if name == server]


class RecordingHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        platform: Platform = self.server.platform  # type: ignore[attr-defined]
        name: str = self.server.name  # type: ignore[attr-defined]
        headers = {key.lower(): value for key, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0))).decode(errors="replace")
        platform.requests.append((name, self.path, headers, body))
        found = platform.answers[name]
        if callable(found):
            status, more, content = found(self.path, headers)
        else:
            status, more = found
            content = b"" if status in (200, 202) else b"the platform's own answer"
        self.send_response(status)
        for key, value in more.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        with suppress(BrokenPipeError):  # the edge went away, as some tests want it to
            self.end_headers()
            self.wfile.write(content)

    do_POST = do_GET

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        pass


class Program(BaseHTTPRequestHandler):
    """A program in a machine: responds with the request it received, and echoes bytes after an upgrade. `said`: more
    headers of its responses.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Upgrade") == "websocket":
            return echo_after_upgrade(self)
        body = self._chunks() if self.headers.get("Transfer-Encoding") == "chunked" else self._sized()
        received = {
            "method": self.command,
            "path": self.path,
            "headers": {key.lower(): value for key, value in self.headers.items()},
            "size": len(body),
            "sum": sum(body) % 65521,
        }
        content = json.dumps(received).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "mine=1")
        for name, value in self.server.said.items():  # type: ignore[attr-defined]
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        return None

    do_POST = do_PUT = do_HEAD = do_DELETE = do_GET

    def _sized(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass
class World:
    instance: Instance
    base: str
    platform: Platform
    machine: str
    said: dict[str, str]

    def reset(self) -> None:
        """As at the beginning, for the next test."""
        self.platform.requests.clear()
        self.said.clear()
        self.platform.answers = {"api": (200, {"X-Upstream": self.machine})}
        shutil.rmtree(route_cache_folder(self.instance.run_dir), ignore_errors=True)

    @contextmanager
    def without(self, server: str) -> Iterator[None]:
        """The socket of "api" or "streams" is away."""
        path = self.instance.run_dir / f"{server}.sock"
        away = path.rename(path.with_name("away.sock"))
        try:
            yield
        finally:
            away.rename(path)

    def send(self, method: str, path: str = "/", *, host: str = f"{HASH}.localhost", **request: Any) -> httpx.Response:
        headers = {"Host": host, **request.pop("headers", {})}
        return httpx.request(method, self.base + path, headers=headers, timeout=120, trust_env=False, **request)


@contextmanager
def open_shared_world() -> Iterator[World]:
    """For the tests of a module; each begins with `reset`."""
    with short_folder() as folder, open_world(load_instance(folder / "edge", free_port())) as made:
        yield made


@contextmanager
def open_world(instance: Instance, given: dict[str, str] | None = None, log: str = "") -> Iterator[World]:
    """`log`: the file of the state folder to which Caddy's lines go."""
    settings = instance.settings(given or {})
    path = instance.run_dir / "Caddyfile"
    path.write_text(caddyfile(settings, instance.run_dir))
    platform = Platform()
    servers = [_stub(instance, name, platform) for name in ("api", "streams")]
    program = ThreadingHTTPServer(("127.0.0.1", 0), Program)
    said: dict[str, str] = {}
    program.said = said  # type: ignore[attr-defined]
    threading.Thread(target=program.serve_forever, args=(0.05,), daemon=True).start()
    home = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"), str(instance.state))
    command = [CADDY, "run", "--config", str(path), "--adapter", "caddyfile"]
    with Path(instance.state / log if log else os.devnull).open("wb") as lines:
        caddy = subprocess.Popen(command, env=home, stderr=lines)
    try:
        base = f"http://127.0.0.1:{instance.port}"
        wait_for_edge(base)
        machine = f"127.0.0.1:{program.server_address[1]}"
        made = World(instance, base, platform, machine, said)
        made.reset()
        yield made
    finally:
        caddy.kill()
        caddy.wait()
        for server in (*servers, program):
            server.shutdown()
            server.server_close()


def _stub(instance: Instance, name: str, platform: Platform) -> Server:
    path = instance.run_dir / f"{name}.sock"
    path.unlink(missing_ok=True)
    server = Server(str(path), RecordingHandler)
    server.name, server.platform = name, platform  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def cache_route(world: World, seconds: range, upstream: str = "", label: str = HASH) -> None:
    for second in seconds:
        directory = route_cache_folder(world.instance.run_dir) / str(second) / label
        directory.mkdir(parents=True)
        (directory / (upstream or world.machine)).touch()


def cache_route_for_long(world: World, upstream: str = "", label: str = HASH) -> None:
    cache_route(world, range(this_second(), this_second() + LONG), upstream, label)


def websocket(world: World, host: str = f"{HASH}.localhost") -> socket.socket:
    parts = urlsplit(world.base)
    connection = socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=120)
    lines = [
        "GET /ws HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13",
    ]  # fmt: skip
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(1)
    assert head.startswith(b"HTTP/1.1 101"), head
    return connection


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(65536)
    return data
