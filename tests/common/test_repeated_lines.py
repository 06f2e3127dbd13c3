"""Lines that a place writes again and again."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from common import repeated_lines
from common.repeated_lines import TRACEBACKS, WARNINGS, WINDOW_SECONDS, RepeatedLines


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def written(clock: Clock) -> Iterator[io.StringIO]:
    """What the logger of these tests writes."""
    made = io.StringIO()
    handler = logging.StreamHandler(made)
    handler.addFilter(RepeatedLines(clock))
    logger.addHandler(handler)
    logger.propagate = False
    yield made
    logger.removeHandler(handler)
    logger.propagate = True


logger = logging.getLogger("tests.repeated")


def complain(number: int) -> None:
    logger.warning("number %d", number)


def fail(number: int) -> None:
    try:
        raise ValueError(number) if number % 2 else KeyError(number)
    except (ValueError, KeyError):
        logger.exception("number %d", number)


def test_beyond_some_lines_a_place_is_counted(written: io.StringIO, clock: Clock) -> None:
    for number in range(1000):
        complain(number)
    logger.warning("another place")
    assert written.getvalue().splitlines() == [*(f"number {n}" for n in range(WARNINGS)), "another place"]
    clock.now = WINDOW_SECONDS
    logger.warning("a minute later")
    assert written.getvalue().splitlines()[-1].startswith(f"a minute later [{1000 - WARNINGS} more lines of test_")
    complain(1)
    assert written.getvalue().splitlines()[-1] == "number 1"


def test_tracebacks_are_fewer_and_counted_by_what_was_raised(written: io.StringIO) -> None:
    for number in range(100):
        fail(number)
    assert written.getvalue().count("ValueError: ") == TRACEBACKS
    assert written.getvalue().count("KeyError: ") == TRACEBACKS


def test_a_process_keeps_some_places_only(written: io.StringIO, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_lines, "PLACES", 3)
    for number in range(20):
        record = logging.LogRecord(logger.name, logging.INFO, "x.py", number, "line %d", (number,), None)
        logger.handle(record)
    handler = logger.handlers[0]
    assert len(handler.filters[0]._windows) <= 3  # type: ignore[union-attr]
    assert len(written.getvalue().splitlines()) == 20
