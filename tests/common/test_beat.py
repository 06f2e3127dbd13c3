"""Which of several beats sends the periodic tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from celery import current_app
from redis.exceptions import ConnectionError as RedisConnectionError

from common.redis import redis_client, redis_key
from config import beat
from config.beat import WAITS, BeatLease, FixedScheduler


@pytest.fixture(autouse=True)
def no_lease() -> None:
    """No beat of another test has the lease."""
    redis_client().delete(redis_key("beat"))


@pytest.fixture
def schedulers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], FixedScheduler]:
    """Makes beats, each with a task that is due every 0.2 s; `sent` has what each sent."""
    monkeypatch.setattr(beat, "RENEW_SECONDS", 0.05)

    def make() -> FixedScheduler:
        made = FixedScheduler(current_app, schedule={}, lazy=True)
        made.sent = []  # type: ignore[attr-defined]
        made.apply_entry = lambda entry, producer=None: made.sent.append(entry.name)  # type: ignore[attr-defined]
        made.merge_inplace({"often": {"task": "t", "schedule": 0.2}})
        return made

    return make


def run(schedulers: list[Any], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for one in schedulers:
            one.tick()
        time.sleep(0.02)


def test_of_two_beats_one_sends_until_it_ends(schedulers: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    first, second = schedulers(), schedulers()
    with caplog.at_level(logging.WARNING):
        run([first, second], 1)
    assert (len(first.sent) >= 2, second.sent) == (True, [])
    assert [record.message for record in caplog.records] == [WAITS]
    first.close()
    sent = len(first.sent)
    run([second], 0.6)
    assert (len(second.sent) >= 1, len(first.sent)) == (True, sent)
    second.close()
    assert redis_client().exists(redis_key("beat")) == 0


def test_a_beat_that_was_killed_is_followed_when_its_lease_ends(
    schedulers: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beat, "LEASE_SECONDS", 0.5)
    first, second = schedulers(), schedulers()
    run([first], 0.3)
    run([second], 0.2)
    assert second.sent == []
    run([second], 1)
    assert second.sent
    # It only stood still: it sends no more.
    monkeypatch.setattr(first._lease, "_renewed_at", 0.0)
    sent = len(first.sent)
    run([second, first], 0.6)
    assert len(first.sent) == sent


def test_a_flushed_redis_gives_the_lease_to_one(schedulers: Callable[[], Any]) -> None:
    leases = [BeatLease(), BeatLease()]
    assert [lease.hold() for lease in leases] == [True, False]
    redis_client().delete(redis_key("beat"))
    leases[0]._renewed_at = 0.0
    assert [lease.hold() for lease in reversed(leases)] == [True, False]


def test_without_redis_none_sends_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lease = BeatLease()

    def away(*args: Any, **kwargs: Any) -> None:
        raise RedisConnectionError("away")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(lease._lock, "acquire", away)
        assert [lease.hold() for _ in range(3)] == [False] * 3
    assert len(caplog.records) == 1
    assert lease.hold()
    lease.give_up()
