"""The worker is notified of what was metered, once for many commits; nothing depends on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from kombu.exceptions import OperationalError

from common.redis import redis_client, redis_key
from tests.callers import Caller
from tests.workspaces.usage.measured import CPU, MeasuredHost
from tests.workspaces.usage.test_threads import until, usage_delta
from workspaces import tasks
from workspaces.charging import wakeups
from workspaces.charging.wakeups import ChargeNotifier, charge_begun, charge_notify
from workspaces.host.metering import writer as writing
from workspaces.host.metering.writer import UsageWriter
from workspaces.models import ChargePosition, MeterRecord


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    charge_begun()
    yield
    charge_begun()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The tasks that are given to the broker."""
    found: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(wakeups.current_app, "send_task", lambda name, **options: found.append((name, options)))
    monkeypatch.setattr(wakeups, "WAIT_SECONDS", 0.01)
    return found


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[UsageWriter]:
    monkeypatch.setattr(writing, "write_deltas", lambda deltas, tick: None)
    made = UsageWriter()
    made.start()
    yield made
    made.stop()


def test_while_a_notification_waits_no_other_is_sent(sent: list[Any]) -> None:
    for _ in range(3):
        charge_notify()
    assert [name for name, _ in sent] == ["workspaces.tasks.charge_metered"]
    assert sent[0][1]["expires"] <= 10
    charge_begun()
    charge_notify()
    assert len(sent) == 2


def test_a_notification_that_was_lost_keeps_others_back_for_seconds_only(sent: list[Any]) -> None:
    charge_notify()
    assert 0 < redis_client().ttl(redis_key("charge-notified")) <= 5


def test_each_commit_is_followed_by_a_notification(writer: UsageWriter, sent: list[Any]) -> None:
    for tick in (1, 2, 3):
        writer.submit(tick, {"ws": usage_delta("ws")})
        until(lambda: sent)
        sent.clear()
        charge_begun()


@pytest.mark.django_db
def test_a_pass_begins_with_the_end_of_the_notification(sent: list[Any]) -> None:
    charge_notify()
    tasks.charge_metered()
    charge_notify()
    assert len(sent) == 2


def test_a_broker_that_hangs_delays_no_write(writer: UsageWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, end = threading.Event(), threading.Event()

    def hang(*_: Any, **__: Any) -> None:
        hanging.set()
        assert end.wait(120)

    monkeypatch.setattr(wakeups.current_app, "send_task", hang)
    monkeypatch.setattr(wakeups, "STOP_SECONDS", 0.05)
    try:
        writer.submit(1, {"ws": usage_delta("ws")})
        assert hanging.wait(120)
        for tick in (2, 3):
            writer.submit(tick, {"ws": usage_delta("ws")})
        until(lambda: len(writer.finished) == 3)
        writer.stop()
    finally:
        end.set()


@pytest.mark.parametrize("error", [OperationalError("away"), redis.ConnectionError("away"), OSError("away")])
def test_a_broker_that_is_away_is_logged_only(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(wakeups.current_app, "send_task", fail)
    charge_notify()
    assert "away" in caplog.text


def test_whatever_fails_the_next_commit_is_notified_of(writer: UsageWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fail(*_: Any, **__: Any) -> None:
        calls.append(1)
        charge_begun()
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(wakeups.current_app, "send_task", fail)
    monkeypatch.setattr(wakeups, "WAIT_SECONDS", 0.01)
    for tick in (1, 2):
        writer.submit(tick, {"ws": usage_delta("ws")})
        until(lambda: len(calls) == tick)  # noqa: B023


@pytest.mark.django_db
def test_without_redis_a_pass_is_made_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, api: Caller, host: MeasuredHost
) -> None:
    def fail() -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(wakeups, "redis_client", fail)
    host.seconds(61, host.machine(), cpu_time_ns=CPU)
    assert tasks.charge_metered() == MeterRecord.objects.count()
    assert ChargePosition.objects.get().record_id


def test_a_notifier_that_was_never_started_ends_too() -> None:
    ChargeNotifier().stop()
