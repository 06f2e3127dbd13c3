"""The ledger: charges, refunds, resets, holds; exact amounts; what the database itself refuses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import Sum

from common.errors import Conflict, DomainError
from credits import holds, ledger
from credits.entries import Purpose
from credits.models import Balance, Entry, EntryKind, Hold, QuotaDefault, Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.webhooks.outbox import passed_thresholds, subscribe

pytestmark = pytest.mark.django_db

SANDBOX = Service.SANDBOX
Announced = Callable[[], list[Any]]


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


def charge(namespace: Namespace, amount: str, service: Service = SANDBOX, **purpose: Any) -> Entry:
    return ledger.credits_charge(
        namespace=namespace, service=service, amount=Decimal(amount), purpose=Purpose(**purpose)
    )


def set_quota(namespace: Namespace, limit: str, overdraft: str = "0", **fields: Any) -> Balance:
    return ledger.quota_set(
        namespace=namespace,
        service=fields.pop("service", SANDBOX),
        limit=Decimal(limit),
        overdraft=Decimal(overdraft),
        action=fields.pop("action", "block"),
        thresholds=fields.pop("thresholds", [80, 95]),
    )


def balance(namespace: Namespace, service: Service = SANDBOX) -> Balance:
    return Balance.objects.get(namespace_id=namespace.pk, service=service)


def hold(namespace: Namespace, amount: str, key: str, **options: Any) -> Hold:
    return holds.credits_hold(namespace=namespace, service=SANDBOX, amount=Decimal(amount), key=key, **options)


def test_small_amounts_are_added_exactly(default: Namespace) -> None:
    charge(default, "9999999")
    for _ in range(500):
        charge(default, "0.00000003")
    assert balance(default).used == Decimal("9999999.00001500")
    assert Entry.objects.aggregate(sum=Sum("amount"))["sum"] == balance(default).used
    assert Entry.objects.filter(balance_after__gt=balance(default).used).count() == 0


@pytest.mark.parametrize("amount", ["0.000000001", "92233720368.54775808"])
def test_an_amount_that_no_column_holds_is_refused(default: Namespace, amount: str) -> None:
    with pytest.raises(ValueError, match="not an amount"), transaction.atomic():
        charge(default, amount)
    assert not Entry.objects.exists()


def test_a_charge_counts_once_by_its_key(default: Namespace) -> None:
    first = charge(default, "2", key="tick")
    assert charge(default, "2", key="tick") == first
    with pytest.raises(Conflict):
        charge(default, "3", key="tick")
    assert balance(default).used == 2


def test_each_entry_has_the_balance_after_it(default: Namespace) -> None:
    charge(default, "5", workspace_id="ws_1", description="CPU")
    ledger.credits_refund(namespace=default, service=SANDBOX, amount=Decimal("1.5"), purpose=Purpose())
    ledger.quota_reset(namespace=default, service=SANDBOX, actor="staff")
    charge(default, "1")
    entries = Entry.objects.order_by("id").values_list("kind", "amount", "balance_after")
    assert list(entries) == [
        (EntryKind.CHARGE, Decimal(5), Decimal(5)),
        (EntryKind.REFUND, Decimal("-1.5"), Decimal("3.5")),
        (EntryKind.RESET, Decimal("-3.5"), Decimal(0)),
        (EntryKind.CHARGE, Decimal(1), Decimal(1)),
    ]


def test_no_more_is_given_back_than_is_used(default: Namespace) -> None:
    charge(default, "1")
    with pytest.raises(Conflict):
        ledger.credits_refund(namespace=default, service=SANDBOX, amount=Decimal(2), purpose=Purpose())
    assert balance(default).used == 1


@pytest.mark.parametrize("change", ["UPDATE credits_entry SET amount = 0", "DELETE FROM credits_entry"])
def test_the_database_refuses_to_change_an_entry(default: Namespace, change: str) -> None:
    charge(default, "1")
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(change)
    assert Entry.objects.get().amount == 1


def test_entries_outlive_the_namespace_and_the_account(api: Caller) -> None:
    gone = Namespace.objects.create(account=api.account, name="Gone", slug="gone")
    charge(gone, "1")
    gone.delete()
    api.account.delete()
    assert Entry.objects.get().balance.namespace_id


def test_services_have_balances_of_their_own(default: Namespace) -> None:
    set_quota(default, "1")
    charge(default, "5", Service.AI)
    default.refresh_from_db()
    assert (balance(default).used, balance(default, Service.AI).used, default.status) == (0, 5, "active")


def test_a_default_quota_is_set_by_the_first_charge(api: Caller, default: Namespace) -> None:
    QuotaDefault.objects.create(
        account_id=api.account.pk,
        service=SANDBOX,
        quota_limit=Decimal(10),
        overdraft=Decimal(2),
        notification_thresholds=[50],
    )
    charge(default, "1")
    assert (balance(default).quota_limit, balance(default).overdraft) == (10, 2)
    QuotaDefault.objects.update(quota_limit=Decimal(20))
    charge(default, "1")
    assert balance(default).quota_limit == 10, "it is a template"


@pytest.fixture
def announced(api: Caller) -> Announced:
    subscribe(api.account)
    return lambda: passed_thresholds(api.account)


def test_each_threshold_fires_once_and_in_order(default: Namespace, announced: Announced) -> None:
    set_quota(default, "100", "10", thresholds=[95, 50, 80, 50])
    for amount in ("49.99999999", "0.00000001", "10", "40", "1", "9", "1"):
        charge(default, amount)
    assert announced() == [50, 80, 95, "depleted"]
    ledger.quota_reset(namespace=default, service=SANDBOX, actor="a")
    charge(default, "60")
    assert announced()[4:] == [50]


def test_setting_a_quota_rearms_what_is_passed_for_the_next_charge(default: Namespace, announced: Announced) -> None:
    charge(default, "90")
    set_quota(default, "100")
    assert announced() == []
    charge(default, "1")
    set_quota(default, "100")
    charge(default, "1")
    assert announced() == [80, 80]


def test_without_a_limit_the_first_charge_is_exhaustion(default: Namespace, announced: Announced) -> None:
    set_quota(default, "0")
    charge(default, "0")
    assert announced() == []
    charge(default, "0.00000001")
    assert announced() == [80, 95, "depleted"]


def test_the_hard_block_suspends_the_namespace_until_there_is_room(default: Namespace) -> None:
    set_quota(default, "10", "5")

    def status() -> tuple[str, bool]:
        default.refresh_from_db()
        return default.status, default.suspended_by_quota

    charge(default, "15")
    assert status() == ("active", False), "the overdraft"
    charge(default, "0.00000001")
    assert status() == ("suspended", True)
    set_quota(default, "20")
    assert status() == ("active", False)
    charge(default, "10")
    assert status() == ("suspended", True)
    ledger.quota_reset(namespace=default, service=SANDBOX, actor="a")
    assert status() == ("active", False)
    assert balance(default).used == 0


def test_a_block_that_a_refund_lifted_comes_back(default: Namespace, announced: Announced) -> None:
    set_quota(default, "10", thresholds=[])
    for amount, status in (("11", "suspended"), ("-2", "active"), ("2", "suspended")):
        if amount.startswith("-"):
            ledger.credits_refund(namespace=default, service=SANDBOX, amount=-Decimal(amount), purpose=Purpose())
        else:
            charge(default, amount)
        default.refresh_from_db()
        assert default.status == status
    assert announced() == ["depleted"], "once between two resets"


def test_a_reset_makes_no_quota_of_a_default(api: Caller, default: Namespace) -> None:
    QuotaDefault.objects.create(account_id=api.account.pk, service=SANDBOX, quota_limit=Decimal(10))
    ledger.quota_reset(namespace=default, service=SANDBOX, actor="a")
    assert balance(default).quota_limit is None


@pytest.mark.django_db(transaction=True)
def test_one_key_at_once_is_one_hold(default: Namespace) -> None:
    set_quota(default, "10")
    assert set(at_once(40, lambda _: hold(default, "10", "call"))) == {"done"}
    assert (Hold.objects.count(), balance(default).held) == (1, 10)


def test_other_services_suspend_only_if_their_action_stops_workspaces(default: Namespace) -> None:
    def state() -> tuple[str, bool]:
        default.refresh_from_db()
        return default.status, default.quota_stops_workspaces

    set_quota(default, "1", service=Service.AI)
    charge(default, "2", Service.AI)
    assert state() == ("active", False)
    set_quota(default, "1", service=Service.AI, action="stop_workspaces")
    assert state() == ("suspended", True)
    set_quota(default, "1")
    charge(default, "2")
    set_quota(default, "10", service=Service.AI, action="stop_workspaces")
    assert state() == ("suspended", False), "by the other quota still"
    set_quota(default, "10")
    assert state() == ("active", False)


def at_once(count: int, work: Callable[[int], Any]) -> list[str]:
    def one(number: int) -> str:
        try:
            work(number)
        except DomainError as exc:
            return type(exc).__name__
        finally:
            connection.close()
        return "done"

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(one, range(count)))
