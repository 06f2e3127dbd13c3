"""Values that each process computes at most once in some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from common import cached_value
from common.cached_value import CachedValue

CALLERS = 6


class Clock:
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.now, self.reads = 100.0, 0

    def monotonic(self) -> float:
        self.reads += 1
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(cached_value, "time", made)
    return made


class Computation:
    """Ends when it may, and has then taken as long as its value is kept."""

    def __init__(self, clock: Clock, outcome: Callable[[int], str]) -> None:
        self.value = CachedValue(self._compute, 5)
        self.computed = 0
        self._goes_on = threading.Event()
        self._clock, self._outcome = clock, outcome

    def _compute(self) -> str:
        assert self._goes_on.wait(60)
        self.computed += 1
        self._clock.now += 5
        return self._outcome(self.computed)

    def together(self) -> list[Future[str]]:
        """What callers get of which all asked before the computation of the first ended."""
        with ThreadPoolExecutor(CALLERS) as pool:
            asked = [pool.submit(self.value.get) for _ in range(CALLERS)]
            deadline = time.monotonic() + 60
            while self._clock.reads < CALLERS:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            self._goes_on.set()
        return asked


def test_a_value_is_computed_once_in_its_time(clock: Clock) -> None:
    computed: list[int] = []

    def compute() -> int:
        computed.append(len(computed))
        return computed[-1]

    value = CachedValue(compute, 5)
    assert [value.get(), value.get()] == [0, 0]
    clock.now += 4.9
    assert value.get() == 0
    clock.now += 0.2
    assert value.get() == 1
    value.invalidate()
    assert value.get() == 2


def test_of_callers_that_come_together_one_computes_and_the_others_get_its_value(clock: Clock) -> None:
    computation = Computation(clock, str)
    assert [future.result() for future in computation.together()] == ["1"] * CALLERS
    assert computation.computed == 1


def test_an_error_is_that_of_all_who_waited_and_the_next_caller_tries_again(clock: Clock) -> None:
    def outcome(number: int) -> str:
        if number == 1:
            raise ValueError("no")
        return "yes"

    computation = Computation(clock, outcome)
    assert [str(future.exception()) for future in computation.together()] == ["no"] * CALLERS
    assert computation.computed == 1
    assert computation.value.get() == "yes"
