"""The threads that look for what is due: beside each other, over failures, to their end."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from certificates import dispatcher, hooks, orders, services
from certificates.dispatcher import THREADS, CertificateDispatcher
from certificates.models import Certificate
from certificates.selectors import certificate_states
from common.work.shares import most_of_account
from tests.certificates.pebble import Pebble, settings_with

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = [f"d{number}.example.org" for number in range(6)]


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_names_get_their_certificates_without_a_hand_and_over_failures(
    ca: Pebble, announced: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "_SHORTEST_POLL", 0.1)
    monkeypatch.setattr(CertificateDispatcher, "LOOK_SECONDS", 0.1)
    look: Any = dispatcher.due_ids
    failures = iter([DatabaseError("gone"), ValueError("a fault")])

    def failing(limit: int, **others: Any) -> list[str]:
        for failure in failures:
            raise failure
        return look(limit, **others)

    monkeypatch.setattr(dispatcher, "due_ids", failing)
    placed = ca.orders()
    services.certificate_request(NAMES)
    two = [CertificateDispatcher(), CertificateDispatcher()]
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


def test_an_account_with_slow_name_servers_holds_up_no_other_account(
    announced: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names were there first, and each look at their records waits for an answer."""
    answered, asked = Event(), []

    def slow(name: str) -> str:
        asked.append(name)
        if name.startswith("slow"):
            assert answered.wait(120)
        return f"{name} has no record."

    settings_with(monkeypatch, acme_directory="https://ca.example/dir")
    monkeypatch.setattr(hooks.dns_points_here, "_handlers", [slow])
    monkeypatch.setattr(CertificateDispatcher, "LOOK_SECONDS", 0.1)
    services.certificate_request([f"slow{number}.example.org" for number in range(8)], owner="acc_slow")
    services.certificate_request(["quick.example.org"], owner="acc_quick")
    Certificate.objects.filter(owner="acc_slow").update(due_at=timezone.now() - timedelta(hours=1))
    running = CertificateDispatcher()
    running.start()
    try:
        wait_until(lambda: "has no record" in certificate_states(["quick.example.org"])["quick.example.org"].error)
        assert len([name for name in asked if name.startswith("slow")]) == most_of_account(0, THREADS)
        answered.set()
        wait_until(lambda: len(set(asked)) == 9)
    finally:
        answered.set()
        running.stop()
    connection.close()
