"""The contract of long work, over all of its users: who owns a row, and what is left where something dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.conf import LazySettings
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerAway
from redis import RedisError

from common import redis as clients
from common.database_errors import is_database_unavailable
from common.work import wakeups
from common.work.leases import ClaimLost
from tests.between_queries import done_after
from tests.callers import Caller
from tests.common.work.users import LONG, PLACES, USERS, WorkUser
from tests.killed_process import database_url, killed_process
from tests.run_extent import WHOLE

pytestmark = pytest.mark.django_db(transaction=True)
NEVER = 1_000_000
users = pytest.mark.parametrize("user", USERS, ids=lambda user: type(user).__name__)


@pytest.fixture(autouse=True)
def no_wake_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is lost."""
    monkeypatch.setattr(wakeups.current_app, "send_task", lambda *_, **__: None)


def lease_ends(user: WorkUser) -> None:
    user.model._default_manager.exclude(lease_until=None).update(lease_until=Now())


def run_to_end(user: WorkUser) -> None:
    with killed_process() as process:
        assert not process.killed_at(NEVER, f"tests.common.work.killed_users.{user.run}")


@users
def test_a_row_has_one_owner_whatever_the_clock_of_a_host_says(
    user: WorkUser, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = user.row_make(api.account)
    owner = user.row_claim(key)
    assert owner is not None
    real = timezone.now
    for wrong in (-LONG, LONG):
        monkeypatch.setattr(timezone, "now", lambda wrong=wrong: real() + wrong)
        assert user.row_claim(key) is None
    monkeypatch.undo()
    user.owner_write(owner)


@users
def test_an_owner_that_lost_its_lease_while_it_worked_writes_nothing(user: WorkUser, api: Caller) -> None:
    key = user.row_make(api.account)
    first = user.row_claim(key)
    lease_ends(user)
    user.dead_settle()
    second = user.row_claim(key)
    assert second is not None
    before = user.model._default_manager.filter(pk=key).values().get()
    with pytest.raises(ClaimLost):
        user.owner_write(first)
    assert user.model._default_manager.filter(pk=key).values().get() == before
    user.owner_write(second)


@users
def test_an_owner_that_was_slow_to_read_its_row_does_not_take_the_claim_of_a_later_one(
    user: WorkUser, api: Caller
) -> None:
    key = user.row_make(api.account)
    later: list[Any] = []

    def claim_later() -> None:
        lease_ends(user)
        user.dead_settle()
        later.append(user.row_claim(key))

    with done_after("UPDATE", claim_later):
        assert user.row_claim(key) is None
    user.owner_write(later[0])


@users
def test_a_lease_from_before_the_clock_was_set_back_keeps_no_row(user: WorkUser, api: Caller) -> None:
    key = user.row_make(api.account)
    assert user.row_claim(key) is not None
    user.model._default_manager.update(lease_until=Now() + LONG)
    user.dead_settle()
    assert user.row_claim(key) is not None


@users
def test_a_higher_epoch_ends_a_claim(user: WorkUser, api: Caller) -> None:
    owner = user.row_claim(user.row_make(api.account))
    user.model._default_manager.update(claim_epoch=1)
    with pytest.raises(ClaimLost):
        user.owner_write(owner)


@users
def test_a_database_that_is_away_for_a_moment_costs_no_claim(user: WorkUser, api: Caller) -> None:
    owner = user.row_claim(user.row_make(api.account))
    with psycopg.connect(database_url(), autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])
    with pytest.raises(Exception) as failure:  # noqa: PT011 - which one, the next line says
        user.owner_write(owner)
    assert is_database_unavailable(failure.value)
    connection.close()
    user.owner_write(owner)


@users
def test_work_is_done_whose_wake_up_was_lost_with_redis(
    user: WorkUser, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise RedisError("no answer")

    def no_broker(*_: Any, **__: Any) -> None:
        raise BrokerAway("no broker")

    monkeypatch.setattr(wakeups.current_app, "send_task", no_broker)
    monkeypatch.setattr(clients, "_shared_client", away)
    key = user.row_make(api.account)
    run_to_end(user)
    assert user.is_done(key)


@users
def test_of_two_accounts_the_second_finds_a_place_however_many_rows_the_first_has(
    user: WorkUser, api: Caller, new_account: Callable[..., Caller], settings: LazySettings
) -> None:
    settings.ENV = settings.ENV.model_copy(update={"pages_threads": PLACES})
    for _ in range(8):
        user.row_make(api.account)
    late = new_account("late").account
    user.row_make(late)
    assert user.first_accounts() == {api.account.pk, late.pk}


# Work has fewer; beyond them are a dispatcher's looks while it waits for an attempt, of which there may be any number.
STATEMENTS = 60


@users
def test_a_process_may_be_killed_at_each_statement(user: WorkUser, api: Caller) -> None:
    run = f"tests.common.work.killed_users.{user.run}"
    with killed_process() as process:
        for statement in range(1, STATEMENTS, 1 if WHOLE else 7):
            key = user.row_make(api.account)
            killed = process.killed_at(statement, run)
            lease_ends(user)
            assert not process.killed_at(NEVER, run)
            assert user.is_done(key), statement
            user.others_end()
            if not killed:
                break
    assert statement > 1
