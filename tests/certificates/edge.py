"""The edge with the ports of names that users bring, and the api's certificate path behind it, in this process."""

from __future__ import annotations

import os
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from django.conf import settings

from certificates.edge_path import CertificatePath
from edge.caddy import caddyfile
from tests.commands.conftest import CADDY, short_folder
from tests.free_ports import free_port


@dataclass
class CustomEdge:
    http_port: int
    https_port: int
    keys_port: int
    log: Path
    caddyfile: str
    process: subprocess.Popen[bytes]

    def lead_ports_to(self, upstream: str) -> None:
        """All domains of workspaces lead to this host and port."""
        _Handler.upstream = upstream

    def get(self, host: str, target: str) -> tuple[int, bytes]:
        """By plain HTTP, the target as it is."""
        with socket.create_connection(("127.0.0.1", self.http_port), timeout=20) as connection:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            raw = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = raw.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    def connect(self, name: str | None, authority: bytes = b"") -> ssl.SSLSocket:
        """A new TLS connection, checked against the authority (PEM) where one is given. Raises ssl.SSLError."""
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if not authority:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        raw = socket.create_connection(("127.0.0.1", self.https_port), timeout=20)
        try:
            return context.wrap_socket(raw, server_hostname=name)
        except BaseException:
            raw.close()
            raise


class _Handler(BaseHTTPRequestHandler):
    """The api's part, of which only the certificate path is here, and what it says of ports of workspaces."""

    upstream = ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/internal/edge/port":
            self._begin("200 OK", [("X-Upstream", self.upstream), ("Content-Length", "0")])
            return
        environ = {"REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query}
        environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in self.headers.items()}
        self.wfile.write(b"".join(CertificatePath(nothing)(environ, self._begin)))  # type: ignore[arg-type]

    def _begin(self, status: str, headers: list[tuple[str, str]]) -> None:
        self.send_response(int(status.split(maxsplit=1)[0]))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The edge has the answer already, and left."""


def nothing(environ: Any, start_response: Any) -> list[bytes]:
    start_response("404 Not Found", [("Content-Length", "0")])
    return [b""]


@contextmanager
def open_custom_edge() -> Iterator[CustomEdge]:
    """Caddy as configured; no name leads to anything."""
    with short_folder() as folder:
        run = folder / "run"
        run.mkdir()
        names = ("port", "domains_http_port", "domains_https_port", "domains_keys_port")
        ports = {name: free_port() for name in names}
        given = settings.ENV.model_copy(update={**ports, "base_url": f"http://127.0.0.1:{ports['port']}"})
        text = caddyfile(given, run)
        (run / "Caddyfile").write_text(text)
        server = _Server(str(run / "api.sock"), _Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        log = folder / "caddy.log"
        home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [CADDY, "run", "--config", str(run / "Caddyfile"), "--adapter", "caddyfile"],
                env={**os.environ, **home},
                stdout=errors,
                stderr=errors,
            )
        try:
            _wait_for_port(given.domains_http_port, process, log)
            yield CustomEdge(
                given.domains_http_port, given.domains_https_port, given.domains_keys_port, log, text, process
            )
        finally:
            process.kill()
            process.wait()
            server.shutdown()
            server.server_close()


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            if time.monotonic() > until or process.poll() is not None:
                raise AssertionError(log.read_text()) from None
            time.sleep(0.05)
        else:
            return
