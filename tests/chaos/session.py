"""One account's requests through the real edge. Every answer is checked; none raises."""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.chaos.answers import Answer, Sent, answer_problems
from tests.chaos.ledger import Ledger, Tracked
from tests.chaos.report import Report

# Longer than any process is stopped, and than a request waits for its operation: one that is given up may be carried
# out later, which weakens what can be expected.
TIMEOUT = httpx.Timeout(80, connect=5)
# A quiet stream is left before its first heartbeat.
STREAM_TIMEOUT = httpx.Timeout(6, connect=5)
# After a request without an answer.
WAIT_SECONDS = 0.3
_numbers = itertools.count(1)


class Session:
    """For one thread. `word` is the account's; `random` is that of the thread's seed."""

    def __init__(
        self, base_url: str, word: str, headers: dict[str, str], ledger: Ledger, report: Report, seed: str
    ) -> None:
        self.word = word
        self.ledger = ledger
        self.report = report
        self.random = random.Random(seed)
        self._base_url = base_url
        self._headers = headers
        self._http = httpx.Client(base_url=base_url, headers=headers, timeout=TIMEOUT, trust_env=False)

    def token(self) -> str:
        """A text that no other request has, of the same length as every other, with the account's word."""
        return f"{self.word}-{next(_numbers):08d}-{self.random.randrange(16**8):08x}"

    def call(self, name: str, method: str, path: str, tracked: Tracked | None = None, **request: Any) -> Answer:
        """Send one request, count it as `name`, and check its answer."""
        sent = self._sent(method, path, tracked)
        headers = {"X-Request-ID": sent.request_id, **request.pop("headers", {})}
        try:
            response = self._http.request(method, path, headers=headers, **request)
            answer = Answer(response.status_code, response.content, dict(response.headers))
        except httpx.HTTPError:
            answer = Answer(0)
            time.sleep(WAIT_SECONDS)
        self.check(name, sent, answer)
        return answer

    def lines(self, name: str, path: str, tracked: Tracked, headers: dict[str, str]) -> Iterator[str]:
        """The lines of an event stream until the caller ends it or the stream breaks off."""
        sent = self._sent("GET", path, tracked)
        headers = {"X-Request-ID": sent.request_id, **headers}
        seen: list[str] = []
        status, shown = 0, dict[str, str]()
        try:
            with self._http.stream("GET", path, headers=headers, timeout=STREAM_TIMEOUT) as response:
                status, shown = response.status_code, dict(response.headers)
                if not response.is_success:
                    seen.append(response.read().decode(errors="replace"))
                    return
                for line in response.iter_lines():
                    seen.append(line)
                    yield line
        except httpx.HTTPError:
            return
        finally:
            self.check(name, sent, Answer(status, "\n".join(seen).encode(), shown))

    def send_part(self, name: str, head: str, part: bytes) -> None:
        """Send a request's head and a part of its body, then close: it must not be carried out."""
        url = urlsplit(self._base_url)
        names = "".join(f"{key}: {value}\r\n" for key, value in self._headers.items())
        text = f"{head}\r\nHost: {url.netloc}\r\n{names}Content-Type: application/json\r\n"
        outcome = "unanswered"
        with suppress(OSError), socket.create_connection((url.hostname, url.port), timeout=5) as connection:
            connection.sendall(text.encode() + part)
            outcome = "broken off"
        self.report.count_operation(name, outcome)

    def check(self, name: str, sent: Sent, answer: Answer) -> None:
        self.report.count_operation(name, answer.outcome)
        self.report.record_check("every answer is checked", [])
        for invariant, problem in answer_problems(sent, answer, self.ledger.foreign_words(self.word)):
            self.report.record_check(invariant, [problem])

    def expect(self, invariant: str, problems: list[str]) -> None:
        """Count a check of what an answer said."""
        self.report.record_check(invariant, problems)

    def _sent(self, method: str, path: str, tracked: Tracked | None) -> Sent:
        exists = tracked is not None and not tracked.may_vanish
        return Sent(method, path, f"{self.word}-{next(_numbers):08d}", self.word, exists)
