"""Random histories of money: what is charged, held, metered, set and priced, beside what is expected of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis.stateful import rule

from common.errors import Conflict, QuotaExceeded
from common.request_origin import NO_ORIGIN
from common.times import EPOCH
from credits import defaults, holds, ledger
from credits.amounts import amount_of_stored
from credits.entries import Purpose
from credits.ledger_check import Counts, balance_drifts
from credits.models import Rate, Service
from credits.services import rate_save
from namespaces.services import namespace_activate, namespace_suspend
from tests.workspaces.charging.expected import ExpectedBalance, Place, Quota
from tests.workspaces.charging.metered_history import SECOND, MeteredHistory
from tests.workspaces.charging.observed import observed_state
from tests.workspaces.charging.steps import STEPS
from workspaces.charging.check import all_drifts
from workspaces.charging.sums_check import charge_drifts


def fields_of(quota: Quota) -> dict[str, Any]:
    """As the services take them."""
    limit, overdraft, action, thresholds = quota
    amounts = {"limit": amount_of_stored(limit), "overdraft": amount_of_stored(overdraft)}
    return {**amounts, "action": action, "thresholds": thresholds}


class MoneyHistory(MeteredHistory):
    """Each example is rolled back. `world`: what the test made before, see test_model.py."""

    def __init__(self, world: Any) -> None:
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        super().__init__(world)
        self.expiries: dict[tuple[Place, str], int] = {}
        self.is_checked = True
        self.rates_agree = True

    @rule(step=STEPS)
    def make(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        self.begin_step()
        getattr(self, name)(*arguments)
        self.end_step()
        self.world.steps += 1

    # Charges, refunds, holds

    def place(self, number: int) -> Place:
        return self.world.places[number]

    def where(self, number: int) -> dict[str, Any]:
        namespace, service = self.place(number)
        return {"namespace": self.world.namespaces[namespace], "service": Service(service)}

    def charge(self, number: int, amount: int) -> None:
        ledger.credits_charge(**self.where(number), amount=amount_of_stored(amount), purpose=Purpose())
        self.ledger.charge(self.place(number), amount)

    def charge_by_key(self, number: int, key: str, amount: int) -> None:
        known = self.ledger.keys.get((number, key))
        self.refused(
            Conflict if known not in (None, amount) else None,
            lambda: ledger.credits_charge(**self.where(number), amount=amount_of_stored(amount), purpose=Purpose(key)),
        )
        if known is None:
            self.ledger.keys[number, key] = amount
            self.ledger.charge(self.place(number), amount)

    def charge_again_by_key(self, which: int) -> None:
        """Nothing changes, not even a quota."""
        known = sorted((*key, amount) for key, amount in self.ledger.keys.items() if not key[1].startswith("hold"))
        if not known:
            return
        number, key, amount = known[which % len(known)]
        entry = ledger.credits_charge(**self.where(number), amount=amount_of_stored(amount), purpose=Purpose(key))
        assert entry.amount == amount_of_stored(amount)

    def refund(self, number: int, amount: int) -> None:
        balance = self.ledger.balance(self.place(number))
        refused = amount > balance.used
        self.refused(
            Conflict if refused else None,
            lambda: ledger.credits_refund(**self.where(number), amount=amount_of_stored(amount), purpose=Purpose()),
        )
        balance.used -= 0 if refused else amount

    def hold(self, number: int, key: str, amount: int, seconds: int) -> None:
        place, now = self.place(number), self.pass_time()
        balance = self.ledger.balance(place)
        limited = ExpectedBalance(balance.used, dict(balance.holds), balance.limit, balance.overdraft)
        if limited.limit is None and place[1] in self.ledger.defaults:
            limited.set(*self.ledger.defaults[place[1]])
        expected: type[Exception] | None = None
        if (number, f"hold:{key}") in self.ledger.keys or balance.holds.get(key, amount) != amount:
            expected = Conflict
        elif key not in balance.holds and not limited.has_room(amount):
            expected = QuotaExceeded
        until = EPOCH + timedelta(microseconds=now + seconds * SECOND)
        self.refused(
            expected,
            lambda: holds.credits_hold(**self.where(number), amount=amount_of_stored(amount), key=key, until=until),
        )
        if expected is None and key not in balance.holds:
            self.ledger.apply_default(place)
            balance.holds[key], self.expiries[place, key] = amount, now + seconds * SECOND

    def hold_many(self, number: int, amounts: list[int]) -> None:
        """Until there is no room."""
        for key, amount in zip("abc", amounts, strict=True):
            self.hold(number, key, amount, 900)

    def charge_up_to(self, number: int, more: int) -> None:
        """To a threshold, or to the hard block, or beyond it by one."""
        balance = self.ledger.balance(self.place(number))
        if balance.limit is None:
            return
        edges = [Fraction(str(each)) * balance.limit / 100 for each in balance.thresholds]
        edges.append(Fraction(balance.limit + balance.overdraft))
        missing = [math.ceil(edge) + more - balance.used for edge in sorted(edges)]
        self.charge(number, next((amount for amount in missing if amount > 0), 1))

    def set_and_charge_up_to(self, number: int, quota: Quota, more: int) -> None:
        self.set(number, quota)
        self.charge_up_to(number, more)

    def settle(self, number: int, key: str, amount: int) -> None:
        balance = self.ledger.balance(self.place(number))
        entry = holds.hold_settle(**self.where(number), key=key, amount=amount_of_stored(amount))
        if balance.holds.pop(key, None) is not None:
            self.ledger.keys[number, f"hold:{key}"] = amount
            balance.charge(amount)
        known = self.ledger.keys.get((number, f"hold:{key}"))
        assert (None if entry is None else entry.amount) == (None if known is None else amount_of_stored(known))

    def void(self, number: int, key: str) -> None:
        balance = self.ledger.balance(self.place(number))
        assert holds.hold_void(**self.where(number), key=key) == (balance.holds.pop(key, None) is not None)

    def expire(self) -> None:
        now, expired = self.pass_time(), 0
        for place, balance in self.ledger.balances.items():
            for key in [key for key in balance.holds if self.expiries[place, key] <= now]:
                del balance.holds[key]
                expired += 1
        assert holds.holds_expire() == expired

    # Quotas, defaults, rates, suspension by hand

    def set(self, number: int, quota: Quota) -> None:
        ledger.quota_set(**self.where(number), **fields_of(quota))
        balance = self.ledger.balance(self.place(number))
        balance.set(*quota)
        balance.rearm()

    def reset(self, number: int) -> None:
        ledger.quota_reset(**self.where(number), actor="staff")
        balance = self.ledger.balance(self.place(number))
        balance.used = 0
        balance.rearm()

    def set_default(self, service: str, quota: Quota, applies: bool) -> None:
        account = self.world.account
        defaults.default_set(account=account, service=Service(service), auto_apply=applies, **fields_of(quota))
        self.ledger.defaults.pop(service, None)
        if applies:
            self.ledger.defaults[service] = quota

    def change_rate(self, unit: str, credits: int, ahead: int) -> None:
        """A rate never holds for what was metered before it was set."""
        now = self.pass_time()
        since = now + ahead * SECOND
        begin = EPOCH + timedelta(microseconds=since)
        self.refused(
            Conflict if ahead <= 60 else None,
            lambda: rate_save(Rate(unit=unit, credits=amount_of_stored(credits), effective_from=begin)),
        )
        if ahead > 60:
            self.ledger.prices.add(unit, since, credits)
            # A clock that was ahead has let something be charged for a time that is still to come.
            self.rates_agree &= self.newest_charged < since

    def suspend_or_activate_by_hand(self) -> None:
        self.by_hand = not self.by_hand
        change: Callable[..., Any] = namespace_suspend if self.by_hand else namespace_activate
        change(namespace=self.world.namespaces[self.world.places[2][0]], actor="owner", origin=NO_ORIGIN)

    # What is compared

    def begin_step(self) -> None:
        self.is_checked = False
        self.pass_time()

    def end_step(self) -> None:
        found, expected = observed_state(), self.expected_state()
        assert found == expected, {
            name: (found[name], expected[name]) for name in found if found[name] != expected[name]
        }
        assert all(each.used >= 0 and each.held >= 0 for each in self.ledger.balances.values())
        self.is_checked = True

    def refused(self, error: type[Exception] | None, work: Callable[[], Any]) -> None:
        if error is None:
            work()
            return
        with pytest.raises(error):
            work()

    def teardown(self) -> None:
        try:
            if self.is_checked:
                self.check_ledger()
        finally:
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    def check_ledger(self) -> None:
        """What `manage.py ledger_check` says, and the sums by hour."""
        counts = Counts()
        assert [*(all_drifts(counts) if self.rates_agree else balance_drifts(counts, charge_drifts))] == []
        with connection.cursor() as cursor:
            cursor.execute("SELECT namespace_id, SUM(credits) FROM workspaces_namespacehour GROUP BY namespace_id")
            found = {namespace: Decimal(credits) for namespace, credits in cursor.fetchall()}
        assert found == {key: Decimal(value) for key, value in self.ledger.hours.items()}
