"""A receiver of webhooks on this host, and a process `hooks` without Celery."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from django.db.models import F

from webhooks.dispatcher import WebhookDispatcher
from webhooks.models import Attempt, Delivery, Event, Subscription


@dataclass(frozen=True)
class Received:
    """One request. Names of headers are lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def event_id(self) -> str:
        return str(json.loads(self.body)["id"])


@dataclass(frozen=True)
class Reply:
    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)


class Receiver:
    """`respond` decides what a request gets; by default it is taken. `url`: `http://127.0.0.1:<port>/hook`."""

    def __init__(self, respond: Callable[[Received], Reply] = lambda _: Reply(), port: int = 0) -> None:
        self.respond = respond
        self.received: list[Received] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                found = Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                reply = receiver._take(found)
                self.send_response(reply.status)
                for name, value in {"Content-Length": "0", **reply.headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, *args: Any) -> None:
                """A sender that ended its attempt."""

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def _take(self, found: Received) -> Reply:
        with self._lock:
            self.received.append(found)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return self.respond(found)
        finally:
            with self._lock:
                self.at_once -= 1

    def event_ids(self) -> list[str]:
        return [each.event_id for each in list(self.received)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def receiving(respond: Callable[[Received], Reply] = lambda _: Reply(), port: int = 0) -> Iterator[Receiver]:
    made = Receiver(respond, port)
    try:
        yield made
    finally:
        made.close()


class Sending:
    """The dispatcher of `hooks`, whose passes the test runs itself."""

    def __init__(self, threads: int = 32, **options: Any) -> None:
        self.dispatcher = WebhookDispatcher(threads, **options)

    @property
    def in_flight(self) -> int:
        return self.dispatcher._in_flight.total

    def run_pass(self) -> int:
        return self.dispatcher.run_pass()

    def await_ends(self, count: int | None = None, seconds: float = 120) -> None:
        """Until so many attempts have ended, by default all in flight; nothing of them is written yet."""
        wanted = self.in_flight if count is None else count
        until(lambda: self.dispatcher._ended.qsize() >= wanted, seconds)

    def settle(self, seconds: float = 120) -> None:
        """Until nothing is in flight and nothing is due that may be sent."""
        end = time.monotonic() + seconds
        while self.run_pass() or self.in_flight:
            assert time.monotonic() < end, f"{self.in_flight} are still in flight"
            self.dispatcher._woken.wait(0.05)
            self.dispatcher._woken.clear()

    def close(self) -> None:
        self.dispatcher._pool.shutdown(wait=True)


def until(true: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.01)


_TIMES: dict[Any, list[str]] = {
    Subscription: ["last_triggered_at", "failing_since", "former_secret_until"],
    Event: ["created_at"],
    Delivery: ["next_attempt_at", "lease_until", "created_at", "delivered_at"],
    Attempt: ["started_at"],
}


def pass_time(span: timedelta) -> None:
    """All that is stored is so much longer ago."""
    for model, names in _TIMES.items():
        model.objects.update(**{name: F(name) - span for name in names})


def replies(*statuses: int, **headers: str) -> Callable[[Received], Reply]:
    """These one after the other, the last one for ever."""
    left = list(statuses)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: Reply(left.pop(0) if len(left) > 1 else left[0], named)


def waiting_for(release: threading.Event) -> Callable[[Received], Reply]:
    """No reply until then."""
    return lambda _: Reply(204 if release.wait(15) else 500)
