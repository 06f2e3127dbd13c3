"""Wake-ups that are sent, lost and not gathered."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from kombu.exceptions import OperationalError
from redis import RedisError

from common.redis import redis_client, redis_key
from common.work import wakeups
from common.work.wakeups import MOST_WAITING, ProcessWakeup, task_send

WAKEUP = ProcessWakeup("queue-of-this-test", "no.such.task")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(
        wakeups.current_app, "send_task", lambda name, **options: found.append({"task": name, **options})
    )
    return found


def test_a_wake_up_names_its_row_and_expires(sent: list[dict[str, Any]]) -> None:
    task_send("app.tasks.run", "queue", ["row_1"])
    assert sent == [{"task": "app.tasks.run", "args": ["row_1"], "queue": "queue", "expires": 3600}]


@pytest.mark.django_db(transaction=True)
def test_a_process_is_notified_when_the_transaction_has_committed(sent: list[dict[str, Any]]) -> None:
    with transaction.atomic():
        WAKEUP.send_on_commit()
        assert sent == []
    assert [(each["task"], each["queue"]) for each in sent] == [("no.such.task", "queue-of-this-test")]


def test_wake_ups_do_not_gather_while_the_process_is_away() -> None:
    for _ in range(MOST_WAITING + 5):
        WAKEUP.send()
    assert redis_client().llen(redis_key(WAKEUP.queue)) == MOST_WAITING
    redis_client().delete(redis_key(WAKEUP.queue))


@pytest.mark.parametrize("error", [OperationalError("no broker"), RedisError("no answer"), OSError("no route")])
def test_without_redis_a_wake_up_is_lost_and_nothing_is_raised(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(wakeups.current_app, "send_task", refuse)
    WAKEUP.send()
    task_send("app.tasks.run", "queue", ["row_1"])
    if isinstance(error, RedisError | OSError):
        monkeypatch.setattr(wakeups, "redis_client", refuse)
        WAKEUP.send()
    assert all("could not notify" in each.getMessage() for each in caplog.records)
    assert len(caplog.records) >= 2
