"""The edge: a real Caddy with the generated configuration in front of two stub servers."""

from __future__ import annotations

import json
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from itertools import pairwise

import httpx
import pytest

from common.edge_header import EdgeFacts, edge_facts
from edge.caddy import caddyfile
from supervise.instance import Instance, load_instance
from tests.commands.conftest import CADDY, short_folder
from tests.free_ports import free_port


def echo_after_upgrade(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.end_headers()
    handler.wfile.flush()
    while data := handler.connection.recv(4096):
        handler.connection.sendall(data)
    handler.close_connection = True


class Stub(BaseHTTPRequestHandler):
    """Responds with its name and the request; `/events` sends one event every half second."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Upgrade") == "websocket":
            return echo_after_upgrade(self)
        if self.path == "/events":
            return self._events()
        return self._respond(0)

    def do_PUT(self) -> None:
        left, first = int(self.headers["Content-Length"]), 0.0
        while left:
            left -= len(self.rfile.read(min(left, 65536)))
            first = first or time.monotonic()
        self._respond(first)

    def _respond(self, first_byte_at: float) -> None:
        seen = {name.lower(): value for name, value in self.headers.items()}
        server = self.server.name  # type: ignore[attr-defined]
        body = json.dumps({"server": server, "path": self.path, "headers": seen, "first": first_byte_at}).encode()
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(4):
            self.wfile.write(f"id: {number}\ndata: x\n\n".encode())
            self.wfile.flush()
            time.sleep(0.5)
        self.close_connection = True

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def serve(instance: Instance, name: str) -> Server:
    path = instance.run_dir / f"{name}.sock"
    path.unlink(missing_ok=True)
    server = Server(str(path), Stub)
    server.name = name  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def wait_for_edge(base: str) -> None:
    for _ in range(100):
        try:
            httpx.get(base + "/static/none")
            return
        except httpx.ConnectError:
            time.sleep(0.1)
    pytest.fail("Caddy did not listen within ten seconds")


@pytest.fixture(scope="module")
def edge() -> Iterator[tuple[Instance, str]]:
    with short_folder() as folder:
        instance = load_instance(folder / "edge", free_port())
        with open_edge(instance) as base:
            yield instance, base


@contextmanager
def open_edge(instance: Instance, given: dict[str, str] | None = None) -> Iterator[str]:
    """A Caddy with an instance's configuration in front of two stubs; yields its address."""
    settings = instance.settings(given or {})
    path = instance.run_dir / "Caddyfile"
    path.write_text(caddyfile(settings, instance.run_dir))
    home = {
        "XDG_CONFIG_HOME": str(instance.state),
        "XDG_DATA_HOME": str(instance.state),
        "HOME": str(instance.state),
    }
    servers = [serve(instance, "api"), serve(instance, "streams")]
    caddy = subprocess.Popen(
        [CADDY, "run", "--config", str(path), "--adapter", "caddyfile"],
        env=home,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_edge(settings.base_url)
        yield settings.base_url
    finally:
        caddy.kill()
        caddy.wait()
        for server in servers:
            server.shutdown()
            server.server_close()


STREAMS = [
    "/workspace/ws_1/overlay",
    "/workspace/ws_1/overlay/read?path=/etc",
    "/workspace/my-slug/exec",
    "/workspace/my-slug/exec/a-command/input",
    "/workspace/ws_1/stats/stream",
    "/workspace/ws_1/logs",
    "/workspace/ws_1/logs/list",
    "/workspace/ws_1/logs/file/cmd.log",
    "/workspace/ws_1/logs/stream/boot",
    "/s/sbx_1/files/read",
    "/events/x",
]
API = [
    "/workspace",
    "/workspace/quota",
    "/workspace/ws_1",
    "/workspace/ws_1/stats",
    "/workspace/ws_1/logsx",
    "/workspace/ws_1/executions",
    "/workspace/ws_1/overlays",
    "/sandbox",
    "/admin/",
    "/missing",
    "/eventsource",
]


def test_guest_routes_go_to_streams_and_all_others_to_the_api(edge: tuple[Instance, str]) -> None:
    _, base = edge
    for path in STREAMS:
        assert httpx.get(base + path).json()["server"] == "streams", path
    for path in API:
        assert httpx.get(base + path).json()["server"] == "api", path
    assert httpx.get(base + "/missing").status_code == 404


def test_forwarded_headers_of_the_client_are_replaced(edge: tuple[Instance, str]) -> None:
    _, base = edge
    headers = {"X-Forwarded-For": "9.9.9.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
    seen = httpx.get(base + "/workspace", headers=headers).json()["headers"]
    assert seen["x-forwarded-for"] == "127.0.0.1"
    assert seen["x-forwarded-proto"] == "http"
    assert "evil" not in seen["x-forwarded-host"]


@pytest.mark.parametrize("path", ["/workspace", "/events/x"])
def test_the_edge_header_is_the_edges_and_no_header_has_an_underscore(edge: tuple[Instance, str], path: str) -> None:
    instance, base = edge
    names = ("X-Edge", "X_Edge", "X_Forwarded_For", "X-Forwarded_For", "X_Client_ID", "X_Request_ID", "x_edge")
    answer = httpx.get(base + path, headers=dict.fromkeys(names, "9.9.9.9"))
    seen = answer.json()["headers"]
    assert edge_facts(seen["x-edge"], instance.settings({}).secret_key) == EdgeFacts("127.0.0.1", "127.0.0.1")
    assert not [name for name in seen if "_" in name]
    assert "9.9.9.9" not in answer.text


def test_behind_a_proxy_the_edge_header_has_the_proxys_addresses(make_instance: Callable[[str], Instance]) -> None:
    instance = make_instance("behind")
    ways = {(): "127.0.0.1", ("8.8.8.8",): "8.8.8.8, 127.0.0.1", ("1.1.1.1", "8.8.8.8"): "1.1.1.1,8.8.8.8, 127.0.0.1"}
    with open_edge(instance, {"PLATFORM_BEHIND_PROXY": "true"}) as base:
        for sent, forwarded in ways.items():
            headers = [("X-Forwarded-For", address) for address in sent]
            seen = httpx.get(base + "/workspace", headers=headers).json()["headers"]
            assert edge_facts(seen["x-edge"], instance.settings({}).secret_key) == EdgeFacts("127.0.0.1", forwarded)


@pytest.mark.parametrize("path", ["/internal", "/internal/route", "/internal/../internal/x", "//internal/x"])
def test_internal_routes_are_not_found_from_outside(edge: tuple[Instance, str], path: str) -> None:
    _, base = edge
    status = subprocess.run(
        ["curl", "-s", "--path-as-is", "-o", "/dev/null", "-w", "%{http_code}", base + path],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert status == "404"


def test_static_files_are_served_by_the_edge(edge: tuple[Instance, str]) -> None:
    instance, base = edge
    (instance.state / "static" / "a.css").write_text("body{}")
    assert httpx.get(base + "/static/a.css").text == "body{}"
    missing = httpx.get(base + "/static/../secrets.env")
    assert "PLATFORM_SECRET_KEY" not in missing.text
    nothing = httpx.get(base + "/static/none.css")
    assert (nothing.status_code, nothing.json()["error"]) == (404, "not_found")


def test_events_arrive_one_by_one(edge: tuple[Instance, str]) -> None:
    _, base = edge
    times = []
    with httpx.stream("GET", base + "/events", timeout=120) as response:
        for text in response.iter_lines():
            if text.startswith("id:"):
                times.append(time.monotonic())
    assert len(times) == 4
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.2


def test_a_websocket_to_streams_is_proxied(edge: tuple[Instance, str]) -> None:
    instance, _ = edge
    head = "GET /s/sbx_1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with socket.create_connection(("127.0.0.1", instance.port), timeout=120) as connection:
        connection.sendall(head.encode())
        got = b""
        while b"\r\n\r\n" not in got:
            got += connection.recv(1)
        assert got.startswith(b"HTTP/1.1 101")
        connection.sendall(b"word")
        # With a timeout the flag MSG_WAITALL has no effect.
        assert connection.makefile("rb").read(4) == b"word"


def test_an_upload_streams_through(edge: tuple[Instance, str]) -> None:
    """The upstream reads the first bytes before the client has sent the last."""
    _, base = edge
    last_sent = 0.0

    def body() -> Iterator[bytes]:
        nonlocal last_sent
        for number in range(64):
            if number == 63:
                time.sleep(0.5)
            yield bytes(1 << 20)
        last_sent = time.monotonic()

    headers = {"Content-Length": str(64 << 20)}
    answer = httpx.put(base + "/workspace/ws_1/overlay", content=body(), headers=headers, timeout=120).json()
    assert answer["server"] == "streams"
    assert answer["first"] < last_sent


def test_the_edge_buffers_a_slow_request_to_the_api(edge: tuple[Instance, str]) -> None:
    """The upstream reads the first byte after the client has sent the last."""
    _, base = edge
    last_sent = 0.0

    def body() -> Iterator[bytes]:
        nonlocal last_sent
        for _ in range(3):
            yield bytes(1000)
            time.sleep(0.2)
        last_sent = time.monotonic()
        yield bytes(1000)

    answer = httpx.put(base + "/workspace/ws_1", content=body(), headers={"Content-Length": "4000"}).json()
    assert answer["server"] == "api"
    assert answer["first"] >= last_sent


def test_an_https_base_url_is_a_caddy_site(make_instance: Callable[[str], Instance]) -> None:
    instance = make_instance("tls")
    given = {"PLATFORM_BASE_URL": "https://vm.example.org"}
    made = caddyfile(instance.settings(given), instance.run_dir)
    assert "https://vm.example.org {" in made
    assert "auto_https off" not in made
    behind = caddyfile(instance.settings({**given, "PLATFORM_BEHIND_PROXY": "true"}), instance.run_dir)
    assert f"http://:{instance.port} {{" in behind
    assert "trusted_proxies private_ranges" in behind
