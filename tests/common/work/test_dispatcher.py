"""The thread that claims and writes: over failures, to its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError
from redis import RedisError

from common.work.dispatcher import Dispatcher
from tests.threads import wait_until


class Counting(Dispatcher[int]):
    """Begins what is in `due`, and keeps what has ended. `failures` are raised by the next passes, after `due` was
    read.
    """

    LOOK_SECONDS = 0.02
    STOP_SECONDS = 10.0

    def __init__(self, threads: int = 2) -> None:
        super().__init__("counting", threads)
        self.due: list[int] = []
        self.written: list[int] = []
        self.failures: list[Exception] = []
        self.in_flight = 0
        self.given_back = False
        self.released = threading.Event()
        self.released.set()

    @property
    def is_busy(self) -> bool:
        return self.in_flight > 0

    def run_pass(self) -> int:
        if self.failures:
            raise self.failures.pop()
        ended = self.ended_work()
        self.written += ended
        self.in_flight -= len(ended)
        while self.due and not self.is_stopping:
            number = self.due.pop()
            self.in_flight += 1
            self.begin(lambda: self._work(number))  # noqa: B023 - each has its own by the call
        return 0

    def _work(self, number: int) -> int:
        self.released.wait(30)
        return number

    def give_back(self) -> None:
        self.given_back = True
        raise OperationalError("gone")


@contextmanager
def counting() -> Iterator[Counting]:
    made = Counting()
    made.start()
    try:
        yield made
    finally:
        made.released.set()
        made.stop()
        assert not made._thread.is_alive()


def test_what_is_due_is_begun_when_it_is_notified_and_written_when_it_ends() -> None:
    with counting() as found:
        found.due.append(1)
        found.wake()
        wait_until(lambda: found.written == [1])
    assert found.given_back


def test_a_lost_wake_up_is_found_at_the_next_look() -> None:
    with counting() as found:
        found.due.append(1)
        wait_until(lambda: found.written == [1])


def test_it_survives_a_database_and_a_redis_that_are_away_and_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    with counting() as found:
        found.failures = [OperationalError("no server"), RedisError("no answer"), ValueError("a fault")]
        found.due.append(1)
        wait_until(lambda: found.written == [1])
    lines = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "common.work.dispatcher"]
    assert sorted(lines) == [
        ("ERROR", "counting"),
        ("WARNING", "counting: waits for Redis: no answer"),
        ("WARNING", "counting: waits for the database: no server"),
    ]


def test_its_end_waits_for_what_is_in_flight_and_begins_nothing_more() -> None:
    with counting() as found:
        found.released.clear()
        found.due.append(1)
        wait_until(lambda: found.in_flight == 1)
        found.stop_claiming()
        found.due.append(2)
        found.released.set()
        found.stop()
        assert (found.written, found.due) == ([1], [2])


def test_a_look_is_due_when_it_was_notified_or_some_time_has_passed() -> None:
    found = Counting()
    found.LOOK_SECONDS = 3600.0
    found.wake()
    assert [found.is_time_to_look(), found.is_time_to_look()] == [True, False]
    found.wake()
    assert found.is_time_to_look()
    found._pool.shutdown()
