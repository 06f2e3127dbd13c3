"""The threads that look for what is due: beside each other, over failures, to their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection

from certificates import dispatcher, orders, services
from certificates.dispatcher import Dispatcher
from certificates.selectors import certificate_states
from tests.certificates.pebble import Pebble

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = [f"d{number}.example.org" for number in range(6)]


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_names_get_their_certificates_without_a_hand_and_over_failures(
    ca: Pebble, announced: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "_SHORTEST_POLL", 0.1)
    monkeypatch.setattr(dispatcher, "LOOK_SECONDS", 0.1)
    look: Any = dispatcher.due_ids
    failures = iter([DatabaseError("gone"), ValueError("a fault")])

    def failing(limit: int) -> list[str]:
        for failure in failures:
            raise failure
        return look(limit)

    monkeypatch.setattr(dispatcher, "due_ids", failing)
    placed = ca.orders()
    services.certificate_request(NAMES)
    two = [Dispatcher(), Dispatcher()]
    for each in two:
        each.start()
    try:
        wait_until(lambda: all(state.status == "active" for state in certificate_states(NAMES).values()))
        wait_until(lambda: len(announced) == len(NAMES))
    finally:
        for each in two:
            each.stop()
    assert sorted(announced) == [(name, True) for name in NAMES]
    assert ca.orders() - placed == len(NAMES)
    assert not any(each._thread.is_alive() for each in two)
    connection.close()
