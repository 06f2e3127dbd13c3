"""The receivers of the accounts' webhooks: one server in the process of the run, which no fault hits.

The first request with an event is now and then refused, answered late or not at all; the next one with it is taken.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

from tests.chaos.ledger import WORDS, Arrived, Ledger
from tests.chaos.report import Report

# Shorter than an attempt, and long enough for a fault to hit in the middle of one.
LATE_SECONDS = 4.0
# What the first request with an event gets, with weights. 0: the connection is closed without an answer.
FIRST_ANSWERS = {"at once": 12, "late": 3, "refused": 2, "asked to wait": 1, "closed": 2}


class Receivers:
    """`take` decides what a request gets. `url(word)` is that of an account's webhook, `secret(word)` what signs it."""

    def __init__(self, ledger: Ledger, report: Report, seed: int) -> None:
        self._ledger = ledger
        self._report = report
        self._random = random.Random(seed)
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        self._server = _server(self.take)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def url(self, word: str) -> str:
        return f"http://{self.place}/{word}"

    def secret(self, word: str) -> str:
        return "whsec_" + base64.b64encode(word.encode() * 4).decode()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """The status to answer with; what is answered with 2xx is in the ledger by then. 0: no answer."""
        word = path.strip("/")
        event = self._checked(word, headers, body)
        if event is None:
            return 400
        answer = self._first_answer() if self._is_first(event["id"]) else "at once"
        self._report.count_operation(f"receive {answer}", "done")
        if answer == "late":
            time.sleep(LATE_SECONDS)
        if answer in ("at once", "late"):
            namespace = (event["data"] or {}).get("namespace") or ""
            self._ledger.add_arrived(Arrived(word, event["id"], event["type"], namespace))
            return 204
        return {"refused": 500, "asked to wait": 503}.get(answer, 0)

    def _checked(self, word: str, headers: dict[str, str], body: bytes) -> dict[str, Any] | None:
        """The event, if it is signed for this receiver and has nothing of another account."""
        problems = [f"{other} at {word}: {body[:200]!r}" for other in WORDS if other != word and other.encode() in body]
        self._report.record_check("an event goes to its own account alone", problems)
        try:
            Webhook(self.secret(word)).verify(body, headers)
        except WebhookVerificationError as error:
            self._report.record_check("every event is signed", [f"{word}: {error} {body[:200]!r}"])
            return None
        self._report.record_check("every event is signed", [])
        found: dict[str, Any] = json.loads(body)
        return found

    def _is_first(self, event: str) -> bool:
        with self._lock:
            is_first = event not in self._seen
            self._seen.add(event)
            return is_first

    def _first_answer(self) -> str:
        with self._lock:
            return self._random.choices(list(FIRST_ANSWERS), list(FIRST_ANSWERS.values()))[0]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def receivers_of(ledger: Ledger, report: Report, seed: int) -> Iterator[Receivers]:
    made = Receivers(ledger, report, seed)
    try:
        yield made
    finally:
        made.close()


def _server(take: Callable[[str, dict[str, str], bytes], int]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if status == 503:
                self.send_header("Retry-After", "2")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            """A sender that was killed."""

    return Server(("127.0.0.1", 0), Handler)
