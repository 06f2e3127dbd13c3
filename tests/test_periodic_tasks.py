"""Beat sends the periodic tasks by a clock that is never set back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import schedules

from common.periodic import LIVES
from common.redis import redis_client, redis_key
from config.beat import FixedScheduler
from config.celery import app


class RecordingScheduler(FixedScheduler):
    """Notes what it would send."""

    sent: list[str]

    def apply_async(self, entry: Any, **_: Any) -> None:
        self.sent.append(entry.name)


@pytest.fixture
def scheduler() -> Iterator[RecordingScheduler]:
    """The only beat."""
    redis_client().delete(redis_key("beat"))
    made = RecordingScheduler(app)
    yield made
    made.close()


def run_due(scheduler: RecordingScheduler) -> list[str]:
    """The names of all tasks that are due now."""
    scheduler.sent = []
    while scheduler.tick() == 0:
        pass
    return scheduler.sent


@pytest.mark.parametrize("hours", [-1, 1])
def test_tasks_are_sent_in_their_intervals_when_the_clock_is_set(
    scheduler: RecordingScheduler, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(run_due(scheduler)) == set(app.conf.beat_schedule), "after a start all are due"
    monkeypatch.setattr(app, "now", lambda: datetime.now(UTC) + timedelta(hours=hours))
    assert run_due(scheduler) == []
    time.sleep(1.1)
    assert run_due(scheduler) == ["sweep-due"]


def test_a_tick_does_not_look_at_all_entries(scheduler: RecordingScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    run_due(scheduler)
    compared: list[object] = []
    monkeypatch.setattr(schedules.schedule, "__eq__", lambda *both: compared.append(both) or both[0] is both[1])
    time.sleep(1.1)
    assert run_due(scheduler) == ["sweep-due"]
    assert compared == []


def test_beat_sleeps_until_a_task_is_due_and_not_almost(scheduler: RecordingScheduler) -> None:
    run_due(scheduler)
    ticks, ends = 0, time.monotonic() + 3.2
    while time.monotonic() < ends:
        time.sleep(max(0.0, scheduler.tick() or 0.0))
        ticks += 1
    sent = len(scheduler.sent)
    assert sent >= 3
    assert ticks <= 3 * sent, "one that finds it due, one that sleeps, and at most another"


def test_a_task_that_waited_for_its_period_is_dropped() -> None:
    entries = app.conf.beat_schedule
    shares = {name: entry["options"]["expires"] / entry["schedule"].seconds for name, entry in entries.items()}
    assert {name for name, share in shares.items() if share != pytest.approx(LIVES)} == {"sweep-due", "charge-metered"}
    assert all(0 < share <= 1 for share in shares.values())
