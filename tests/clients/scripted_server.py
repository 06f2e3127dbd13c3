"""An HTTP server on a real socket that does, request by request, what a test says: also to break off."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = Callable[["ScriptedRequest"], None]


class ScriptedRequest(BaseHTTPRequestHandler):
    """Passes each request to the next step; without one left it is a 404."""

    protocol_version = "HTTP/1.1"
    script: Script

    def handle_one_step(self) -> None:
        self.script.seen.append(
            (self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
        )
        path = self.path.partition("?")[0]
        steps = next((found for end, found in self.script.by_path.items() if path.endswith(end)), self.script.steps)
        step = steps.pop(0) if steps else not_found
        step(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one_step

    def log_message(self, *_: Any) -> None:
        """Nothing: the test looks at `seen`."""

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """The head of an answer, and as much of its body as is given; the connection ends after it."""
        self.send_response(status)
        # Else the client might send its next request on this connection.
        for name, value in {"Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True


@dataclass
class Script:
    """What is done with each request, and what came in: method, path, headers in lower case.

    `by_path`: that of paths with such an end, which come beside the others.
    """

    steps: list[Step] = field(default_factory=list)
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""
    by_path: dict[str, list[Step]] = field(default_factory=dict)


def not_found(request: ScriptedRequest) -> None:
    body = b'{"success": false, "error": "not_found", "code": "not_found", "message": "It is gone."}'
    request.answer(404, {"Content-Length": str(len(body)), "Content-Type": "application/json"}, body)


def command_stream(*events: tuple[str, Any], cut: bool = False) -> Step:
    """Answers with these events of a command, and ends the connection; with `cut` before the body's announced end."""

    def step(request: ScriptedRequest) -> None:
        # A connection that is closed with something unread is reset, and the answer with it.
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        text = "".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in events).encode()
        headers = {"Content-Type": "text/event-stream"} | ({"Content-Length": "100000"} if cut else {})
        request.answer(200, headers, b": heartbeat\n\n" + text)

    return step


def command_output(stream: str, data: bytes) -> tuple[str, Any]:
    """An event of a command that writes."""
    return stream, {"data": b64encode(data).decode(), "lossy": False}


def command_end(code: int = 0, *, timed_out: bool = False) -> tuple[str, Any]:
    """The last event of a command."""
    return "exit", {"exit_code": code, "duration_ms": 5, "timed_out": timed_out, "lossy": False}


@contextmanager
def scripted_server(*steps: Step, by_path: dict[str, list[Step]] | None = None) -> Iterator[Script]:
    """Serves the steps in turn, until the block ends."""
    script = Script(list(steps), by_path=by_path or {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (ScriptedRequest,), {"script": script}))
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
