"""Passes beside charges, resets, settings, refunds and requests: nothing is lost, and none waits in a circle."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from threading import Thread
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from django.db.models import Sum

from accounts.models import Account
from accounts.services import account_lock
from common.request_origin import NO_ORIGIN
from credits import holds, ledger
from credits.entries import Purpose
from credits.models import Balance, Entry, EntryKind, Service
from namespaces.models import Namespace
from namespaces.services import namespace_suspend, namespace_update, namespace_used
from tests.callers import Caller
from tests.threads import run_at_once
from tests.workspaces.rows import make_workspace
from tests.workspaces.usage.test_charging import HOUR_NS, TICK, metered, record, records
from workspaces.charging import services as charging

pytestmark = pytest.mark.django_db(transaction=True)

SANDBOX = Service.SANDBOX


@pytest.fixture
def team(api: Caller) -> Namespace:
    """Not the default one, which cannot be suspended by hand."""
    return Namespace.objects.create(account=api.account, name="Team", slug="team")


def charge(namespace: Namespace, amount: str, **purpose: Any) -> None:
    ledger.credits_charge(namespace=namespace, service=SANDBOX, amount=Decimal(amount), purpose=Purpose(**purpose))


def set_quota(namespace: Namespace, limit: str) -> None:
    ledger.quota_set(
        namespace=namespace,
        service=SANDBOX,
        limit=Decimal(limit),
        overdraft=Decimal(0),
        action="block",
        thresholds=[80],
    )


def charge_directly(namespace: Namespace) -> None:
    charge(namespace, "1")


def charge_by_a_pass(namespace: Namespace) -> None:
    record(metered(namespace), TICK, cpu_time_ns=HOUR_NS)
    assert charging.charge_metered() == 1


def settle(namespace: Namespace) -> None:
    holds.hold_settle(namespace=namespace, service=SANDBOX, key="call", amount=Decimal(1))


LOCKED: dict[str, Callable[[Namespace], Any]] = {
    "that uses the namespace": namespace_used,
    "that creates in it": lambda namespace: make_workspace(namespace.account, namespace=namespace),
    "that suspends it": lambda namespace: namespace_suspend(namespace=namespace, actor="owner", origin=NO_ORIGIN),
    "that changes it": lambda namespace: namespace_update(
        namespace=namespace, changes={"name": "New"}, actor="owner", origin=NO_ORIGIN
    ),
}


@pytest.mark.parametrize("request_of", LOCKED)
@pytest.mark.parametrize("work", [charge_directly, charge_by_a_pass, settle])
def test_a_charge_that_suspends_and_a_request_never_wait_for_each_other(
    team: Namespace, work: Callable[[Namespace], Any], request_of: str
) -> None:
    """The charge has the namespace and writes rows of the account; the request has the account and wants the
    namespace."""
    holds.credits_hold(namespace=team, service=SANDBOX, amount=Decimal(1), key="call")
    set_quota(team, "0.5")
    outcomes: list[str] = []
    thread = Thread(target=lambda: outcomes.extend(run_at_once(1, lambda _: work(team))))
    with transaction.atomic():
        account_lock(team.account)
        thread.start()
        thread.join(2)  # it is done, or waits for this transaction
        LOCKED[request_of](team)
    thread.join()
    assert outcomes == ["done"]
    team.refresh_from_db()
    assert team.suspended_by_quota


def test_a_pass_beside_charges_settings_and_resets_counts_everything_once(
    team: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charging, "BATCH", 5)
    owners = [metered(team, f"ws_{number}") for number in range(3)]
    for owner in owners:
        records(owner, 20, cpu_time_ns=HOUR_NS)
    namespace_of = lambda: Namespace.objects.get(pk=team.pk)  # noqa: E731
    works: list[Callable[[int], Any]] = [
        lambda _: charging.charge_metered(),
        lambda number: charge(namespace_of(), "0.25", key=f"call-{number}"),
        lambda _: ledger.quota_reset(namespace=namespace_of(), service=SANDBOX, actor="staff"),
        lambda number: set_quota(namespace_of(), str(number)),
        lambda number: record(owners[0], TICK + 1 + number, cpu_time_ns=HOUR_NS),
    ]
    outcomes = run_at_once(50, lambda number: works[number % len(works)](number))
    assert set(outcomes) == {"done"}
    while charging.charge_metered():
        pass
    charges = Entry.objects.filter(kind=EntryKind.CHARGE).aggregate(sum=Sum("amount"))["sum"]
    assert charges == 60 + 10 + 10 * Decimal("0.25")
    check_ledger(team)


def check_ledger(namespace: Namespace) -> None:
    """The sum of its entries, and what `ledger_check` says; a namespace is suspended where its quota is used up."""
    balance = Balance.objects.get(namespace_id=namespace.pk)
    assert balance.used == Entry.objects.filter(balance=balance).aggregate(sum=Sum("amount"))["sum"]
    call_command("ledger_check")
    namespace.refresh_from_db()
    limit = balance.quota_limit
    assert namespace.suspended_by_quota == (limit is not None and balance.used > limit)


def test_a_tick_that_is_charged_beside_a_reset_counts_before_or_after_it(team: Namespace) -> None:
    for number in range(10):
        record(metered(team), TICK + number, cpu_time_ns=HOUR_NS)
        run_at_once(
            2,
            lambda which: (
                ledger.quota_reset(namespace=team, service=SANDBOX, actor="a") if which else charging.charge_metered()
            ),
        )
        charging.charge_metered()
        used, charged = 0, 0
        for kind, amount, after in Entry.objects.order_by("id").values_list("kind", "amount", "balance_after"):
            used, charged = used + amount, charged + (kind == EntryKind.CHARGE)
            assert (after, kind == EntryKind.RESET) in ((used, False), (0, True))
        assert charged == number + 1
    check_ledger(team)


def test_of_many_refunds_at_once_no_more_is_given_back_than_is_used(team: Namespace) -> None:
    charge(team, "10")

    def refund(number: int) -> None:
        ledger.credits_refund(
            namespace=team, service=SANDBOX, amount=Decimal(1), purpose=Purpose(key=f"refund-{number % 30}")
        )

    outcomes = run_at_once(60, refund)
    assert set(outcomes) == {"done", "Conflict"}
    assert Balance.objects.get().used == 0
    assert Entry.objects.filter(kind=EntryKind.REFUND).count() == 10
    check_ledger(team)


def test_of_200_threads_that_hold_with_room_for_one_exactly_one_succeeds(team: Namespace) -> None:
    set_quota(team, "10")
    outcomes = run_at_once(
        200,
        lambda number: holds.credits_hold(namespace=team, service=SANDBOX, amount=Decimal(10), key=f"call-{number}"),
    )
    assert sorted(set(outcomes)) == ["CreditsUsedUp", "done"]
    assert (outcomes.count("done"), Balance.objects.get().held) == (1, 10)


def test_holds_that_end_in_every_way_at_once_end_once(team: Namespace) -> None:
    for number in range(30):
        holds.credits_hold(namespace=team, service=SANDBOX, amount=Decimal(1), key=f"call-{number}")

    def end(number: int) -> None:
        where: dict[str, Any] = {"namespace": team, "service": SANDBOX, "key": f"call-{number % 30}"}
        holds.hold_settle(**where, amount=Decimal(2)) if number // 30 else holds.hold_void(**where)

    assert set(run_at_once(90, end)) == {"done"}
    settled = Entry.objects.filter(key__startswith="hold:").count()
    balance = Balance.objects.get()
    assert (balance.held, balance.used) == (0, 2 * settled)
    check_ledger(team)


def test_accounts_that_are_charged_at_once_disturb_no_other(api: Caller, stranger: Caller, team: Namespace) -> None:
    mine, theirs = team, Namespace.objects.get(account=stranger.account)
    for namespace in (mine, theirs):
        set_quota(namespace, "3")
    chosen = random.Random(1)
    works = [lambda _: charging.charge_metered(), lambda _: charge(mine, "1"), lambda _: charge(theirs, "1")]
    order = [chosen.choice(works) for _ in range(40)]
    for number in range(20):
        record(metered(mine if number % 2 else theirs), TICK + number, cpu_time_ns=HOUR_NS)
    assert set(run_at_once(40, lambda number: order[number](number))) == {"done"}
    while charging.charge_metered():
        pass
    check_ledger(mine)
    check_ledger(theirs)
    assert {row.account_id for row in Balance.objects.all()} == set(Account.objects.values_list("pk", flat=True))
