"""A CA that answers as a test says: it is slow, limits, or sends what no CA should."""

from __future__ import annotations

import json
import threading
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]


class FakeCa:
    """`answers`: by path. Those of the directory, of nonces and of accounts are there from the start."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.asked: list[str] = []
        self.sent: list[tuple[str, Any]] = []  # with what the signed requests had inside
        paths = {"newNonce": "/nonce", "newAccount": "/account", "newOrder": "/order"}
        self.answers: dict[str, Answer | Callable[[], Answer]] = {
            "/dir": self.json(200, {name: self.base + path for name, path in paths.items()}),
            "/nonce": (200, {}, b""),
            "/account": self.json(201, {"status": "valid"}, Location=f"{self.base}/account/1"),
        }

    def json(self, status: int, body: Any, **headers: str) -> Answer:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return status, {"Content-Type": "application/json", **names}, json.dumps(body).encode()

    def problem(self, status: int, kind: str, detail: Any, **headers: str) -> Answer:
        return self.json(status, {"type": f"urn:ietf:params:acme:error:{kind}", "detail": detail}, **headers)

    @property
    def directory(self) -> str:
        return f"{self.base}/dir"


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        ca: FakeCa = self.server.ca  # type: ignore[attr-defined]
        ca.asked.append(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command == "POST":
            payload = json.loads(body)["payload"]
            inside = urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
            ca.sent.append((self.path, json.loads(inside) if inside else None))
        found = ca.answers.get(self.path, (404, {}, b"none"))
        status, headers, body = found() if callable(found) else found
        self.send_response(status)
        for name, value in {"Replay-Nonce": "bm9uY2U", **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def open_fake_ca() -> Iterator[FakeCa]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.ca = FakeCa(server.server_port)  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.ca  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
