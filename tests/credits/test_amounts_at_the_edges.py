"""The smallest and the largest amounts, and what is none: exact inside, JSON numbers outside, never a 500."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from common.errors import Conflict, QuotaExceeded
from credits import holds, ledger
from credits.amounts import MAX_CREDITS, amount_of_stored, stored_amount
from credits.entries import Purpose
from credits.models import Balance, Entry, Hold, Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.world import assert_error

pytestmark = pytest.mark.django_db

SMALLEST, LARGEST_QUOTA = Decimal("0.00000001"), Decimal(10_000_000)
# Below it a double has all of 8 places.
EXACT_IN_JSON = Decimal(2**26)


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


def charge(namespace: Namespace, amount: Any, service: Service = Service.SANDBOX) -> Entry:
    return ledger.credits_charge(namespace=namespace, service=service, amount=Decimal(amount), purpose=Purpose())


def set_quota(api: Caller, **fields: Any) -> Any:
    body = {"namespace": "default", "service": "sandbox", **fields}
    return api.post("/credits/namespace-quota", body)


@pytest.mark.parametrize(
    "amount",
    ["0", "-0", "0.00000001", "-0.00000001", "90071992.54740993", "92233720368.54775807", "1E+10", "0E+999999"],
)
def test_an_amount_is_stored_exactly(amount: str) -> None:
    assert amount_of_stored(stored_amount(Decimal(amount))) == Decimal(amount)


@pytest.mark.parametrize(
    "amount",
    [
        "0.000000001",
        "1.000000000000000000000000000000000000001",
        "92233720368.54775808",
        "-92233720368.54775808",
        "1E+11",
        "1E+999999999",
        "1E-999999999",
        "NaN",
        "sNaN",
        "Infinity",
        "-Infinity",
    ],
)
def test_what_is_no_amount_is_refused(default: Namespace, amount: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        stored_amount(Decimal(amount))
    refuse(default, amount)


@pytest.mark.parametrize("amount", ["-0.00000001", "-1"])
def test_a_negative_amount_is_refused(default: Namespace, amount: str) -> None:
    refuse(default, amount)


def refuse(namespace: Namespace, amount: str) -> None:
    """No function of the ledger takes it, and nothing is written."""
    charge(namespace, 5)
    common: dict[str, Any] = {"namespace": namespace, "service": Service.SANDBOX}
    holds.credits_hold(**common, amount=Decimal(1), key="held")
    for work in (
        lambda: charge(namespace, amount),
        lambda: ledger.credits_refund(**common, amount=Decimal(amount), purpose=Purpose()),
        lambda: holds.credits_hold(**common, amount=Decimal(amount), key="new"),
        lambda: holds.hold_settle(**common, key="held", amount=Decimal(amount)),
    ):
        with pytest.raises(ValueError, match=r"not an amount|is negative"):
            work()
    assert (Entry.objects.count(), Balance.objects.get().used, Balance.objects.get().held) == (1, 5, 1)


def test_the_largest_balance_is_full(default: Namespace) -> None:
    charge(default, MAX_CREDITS - SMALLEST)
    assert charge(default, SMALLEST).balance_after == MAX_CREDITS
    common: dict[str, Any] = {"namespace": default, "service": Service.SANDBOX}
    for work in (
        lambda: charge(default, SMALLEST),
        lambda: holds.credits_hold(**common, amount=SMALLEST, key="one"),
        lambda: holds.credits_hold(**common, amount=MAX_CREDITS, key="two"),
    ):
        with pytest.raises(Conflict):
            work()
    assert (Entry.objects.count(), Hold.objects.count(), Balance.objects.get().used) == (2, 0, MAX_CREDITS)
    assert ledger.quota_reset(**common, actor="staff").used == 0


@pytest.mark.parametrize(
    "used",
    [
        SMALLEST,
        LARGEST_QUOTA - SMALLEST,
        LARGEST_QUOTA,
        EXACT_IN_JSON - SMALLEST,
        Decimal(2**53 + 1) / 10**8,
        MAX_CREDITS,
    ],
)
def test_an_amount_is_a_json_number_outside(api: Caller, default: Namespace, used: Decimal) -> None:
    charge(default, used)
    set_quota(api, quotaLimit=10_000_000)
    for path, place in (
        ("/credits/namespaces/default", ("data", "quotas", 0, "quota_used")),
        ("/credits/namespaces/default", ("data", "usage", "total_credits")),
        ("/credits/namespaces/default", ("data", "transactions", 0, "balance_after")),
        ("/credits/namespaces", ("aggregations", "total_used")),
        ("/namespaces/default/usage", ("data", "usage", 0, "total_credits")),
    ):
        shown = json.loads(api.get(path).content, parse_float=Decimal, parse_int=Decimal)
        for step in place:
            shown = shown[step]
        assert isinstance(shown, Decimal), f"{path}: no JSON number"
        assert shown == used if used < EXACT_IN_JSON else abs(shown - used) < used / 10**15


def test_sums_of_large_amounts_overflow_nowhere(api: Caller, default: Namespace) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    for namespace in (default, other):
        for service in Service:
            charge(namespace, MAX_CREDITS, service)
            fields = {"namespace": namespace.slug, "service": service}
            assert api.post("/credits/namespace-quota", {**fields, "quotaLimit": 10_000_000}).status_code == 200
    body = api.get("/credits/namespaces").json()
    assert body["aggregations"] == {"total_limit": 80_000_000, "total_used": float(MAX_CREDITS * 8)}
    assert api.get("/credits/namespaces/default").json()["data"]["usage"]["total_credits"] == float(MAX_CREDITS * 4)


@pytest.mark.parametrize("name", ["quotaLimit", "overdraft"])
@pytest.mark.parametrize(
    "number",
    [
        "-1",
        "-0.00000001",
        "10000000.00000001",
        "10000000.1",
        "1e-9",
        "1e300",
        "1" + "0" * 400,
        "1" + "0" * 4000,
        "-1e300",
    ],
)
def test_a_number_beyond_the_edges_is_400_by_its_field(api: Caller, name: str, number: str) -> None:
    other = "" if name == "quotaLimit" else '"quotaLimit": 1, '
    answer = api.post(
        "/credits/namespace-quota", f'{{"namespace": "default", "service": "ai", {other}"{name}": {number}}}'
    )
    assert_error(answer, 400, "validation_error")
    assert list(answer.json()["details"]) == [name]
    assert not Balance.objects.exists()


@pytest.mark.parametrize(
    "number", ["NaN", "-NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 5000, "0x1", "01"]
)
def test_what_is_no_json_number_is_400(api: Caller, number: str) -> None:
    for name in ("quotaLimit", "overdraft"):
        body = f'{{"namespace": "default", "service": "ai", "quotaLimit": 1, "{name}": {number}}}'
        assert_error(api.post("/credits/namespace-quota", body), 400, "invalid_json")
    assert not Balance.objects.exists()


@pytest.mark.parametrize("number", ["0", "-0.0", "0e5", "1e-8", "0.00000001", "10000000", "1e7", "9999999.99999999"])
def test_a_number_at_an_edge_is_taken_and_shown(api: Caller, default: Namespace, number: str) -> None:
    text = f'{{"namespace": "default", "service": "ai", "quotaLimit": {number}, "overdraft": {number}}}'
    assert api.post("/credits/namespace-quota", text).status_code == 200
    balance = Balance.objects.get()
    assert balance.quota_limit == balance.overdraft == Decimal(number)
    shown = json.loads(api.get("/credits/namespaces/default").content, parse_float=Decimal)["data"]["quotas"][0]
    assert Decimal(shown["quota_limit"]) == Decimal(shown["overdraft"]) == Decimal(number)
    assert not str(shown["quota_limit"]).startswith("-")


def test_a_limit_of_zero_refuses_the_smallest_hold_and_is_passed_by_the_smallest_charge(
    api: Caller, default: Namespace
) -> None:
    set_quota(api, quotaLimit=0)
    common: dict[str, Any] = {"namespace": default, "service": Service.SANDBOX}
    with pytest.raises(QuotaExceeded):
        holds.credits_hold(**common, amount=SMALLEST, key="some")
    assert holds.credits_hold(**common, amount=Decimal(0), key="free").amount == 0
    charge(default, 0)
    default.refresh_from_db()
    assert default.status == "active"
    charge(default, SMALLEST)
    default.refresh_from_db()
    assert (default.status, default.suspended_by_quota) == ("suspended", True)
    assert_error(api.post("/workspace", {}), 402, "quota_exceeded")


def test_what_costs_nothing_is_held_and_settled(default: Namespace) -> None:
    common: dict[str, Any] = {"namespace": default, "service": Service.AI}
    assert holds.credits_hold(**common, amount=Decimal(0), key="free").amount == 0
    entry = holds.hold_settle(**common, key="free", amount=Decimal(0))
    assert entry is not None
    assert (entry.amount, Balance.objects.get().used, Balance.objects.get().held) == (0, 0, 0)
