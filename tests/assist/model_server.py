"""A model of the test's own: a server of chat completions on this host, each of whose answers a test writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GOOD = {
    "generate": {"code": "print(1)", "explanation": "It prints.", "suggestions": ["test it"]},
    "debug": {"analysis": "a", "fix": "f", "explanation": "e", "prevention": "p"},
    "optimize": {
        "analysis": "slow",
        "optimizations": [{"type": "loop", "code": "c", "improvement": "2x", "explanation": "e"}],
    },
}
USAGE = {"prompt_tokens": 300, "completion_tokens": 700}


@dataclass
class Exchange:
    """One request, and what a script writes to its connection."""

    handler: BaseHTTPRequestHandler
    headers: Mapping[str, str]
    body: dict[str, Any]
    number: int

    @property
    def route(self) -> str:
        return next(name for name in GOOD if "You " + _VERBS[name] in self.body["messages"][0]["content"])

    def status(self, code: int, headers: Mapping[str, str] | None = None, body: bytes = b"{}") -> None:
        self.handler.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.handler.send_header(name, value)
        self.handler.send_header("Content-Length", str(len(body)))
        self.handler.end_headers()
        self.handler.wfile.write(body)

    def begin_stream(self) -> None:
        """Without a length: the end of the connection ends it."""
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "text/event-stream")
        self.handler.end_headers()

    def send(self, data: bytes) -> None:
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def event(self, value: Any) -> None:
        self.send(b"data: " + json.dumps(value).encode() + b"\n\n")

    def text(self, text: str, finish: str | None = None) -> None:
        self.event({"choices": [{"delta": {"content": text}, "finish_reason": finish}]})

    def answer(self, text: str, *, finish: str = "stop", usage: Mapping[str, Any] | None = USAGE) -> None:
        """A whole answer as servers stream it."""
        self.begin_stream()
        half = len(text) // 2
        for part in (text[:half], text[half:]):
            self.text(part)
        self.text("", finish)
        if usage is not None:
            self.event({"choices": [], "usage": usage})
        self.send(b"data: [DONE]\n\n")

    def good(self, **changes: Any) -> None:
        self.answer(json.dumps({**GOOD[self.route], **changes}))


_VERBS = {"generate": "write", "debug": "find", "optimize": "make"}
Script = Callable[[Exchange], None]


@dataclass
class ModelServer:
    """`script` answers. `held`: an event that `hang` waits for. `gone`: how many clients ended their connections."""

    url: str = ""
    script: Script = Exchange.good
    exchanges: list[Exchange] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    open: int = 0
    gone: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hang(self, exchange: Exchange) -> None:
        """Says nothing until the client has gone, or the test ends the wait; then the good answer."""
        self.wait(exchange)
        exchange.good()

    def wait(self, exchange: Exchange) -> None:
        connection = exchange.handler.connection
        connection.settimeout(0.02)
        while not self.held.is_set():
            try:
                if connection.recv(1) == b"":
                    self.gone += 1
                    raise BrokenPipeError
            except TimeoutError:
                continue
        connection.settimeout(None)


@contextmanager
def serving_model() -> Iterator[ModelServer]:
    model = ModelServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with model.lock:
                exchange = Exchange(self, headers, body, len(model.exchanges) + 1)
                model.exchanges.append(exchange)
                model.open += 1
            try:
                model.script(exchange)
            except (BrokenPipeError, ConnectionResetError):
                pass
            finally:
                with model.lock:
                    model.open -= 1

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield model
    finally:
        model.held.set()
        server.shutdown()
        server.server_close()
        thread.join()
