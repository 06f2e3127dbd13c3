"""The ledger beside a model of dictionaries: after each step of any history both have the same balances, holds,
announcements and suspension.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from common.errors import Conflict, QuotaExceeded
from credits import ledger
from credits.ledger import Purpose
from credits.models import Balance, Entry, Hold, Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.webhooks.outbox import passed_thresholds, subscribe

pytestmark = pytest.mark.django_db

# In make test 10,000 steps; STEPS=1000000 for a long search.
LENGTH = 50
EXAMPLES = int(os.environ.get("STEPS", "10000")) // LENGTH
UNIT = Decimal("0.00000001")

amounts = st.integers(1, 500).map(lambda number: number * UNIT)
keys = st.sampled_from("abcd")
STEPS = st.one_of(
    st.tuples(st.just("charge"), amounts),
    st.tuples(st.just("charge_key"), keys, amounts),
    st.tuples(st.just("refund"), amounts),
    st.tuples(st.just("hold"), keys, amounts),
    st.tuples(st.just("settle"), keys, amounts),
    st.tuples(st.just("void"), keys),
    st.tuples(st.just("expire"), keys),
    st.tuples(
        st.just("set"), st.integers(0, 1500).map(lambda n: n * UNIT), amounts, st.sampled_from([[], [50], [80, 95]])
    ),
    st.tuples(st.just("reset")),
)


@dataclass
class Model:
    """What the ledger should hold."""

    used: Decimal = Decimal(0)
    held: dict[str, Decimal] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    charged: dict[str, Decimal] = field(default_factory=dict)
    limit: Decimal | None = None
    overdraft: Decimal = Decimal(0)
    thresholds: list[float] = field(default_factory=list)
    fired: float | None = None
    depleted: bool = False
    announced: list[Any] = field(default_factory=list)
    suspended: bool = False

    @property
    def blocked(self) -> bool:
        return self.limit is not None and self.used > self.limit + self.overdraft

    @property
    def room(self) -> Decimal:
        if self.limit is None:
            return Decimal("Infinity")
        return self.limit + self.overdraft - self.used - sum(self.held.values())

    def spend(self, amount: Decimal) -> None:
        self.used += amount
        if self.limit is not None:
            for threshold in sorted(self.thresholds):
                if (self.fired is None or threshold > self.fired) and self.used * 100 >= self.limit * Decimal(
                    threshold
                ):
                    self.fired = threshold
                    self.announced.append(threshold)
        if self.blocked and not self.depleted:
            self.depleted = True
            self.announced.append("depleted")
        if self.blocked:
            self.suspended = True


class World:
    """The ledger of one namespace, and its model."""

    def __init__(self, namespace: Namespace) -> None:
        self.common: dict[str, Any] = {"namespace": namespace, "service": Service.SANDBOX}
        self.namespace = namespace
        self.model = Model()

    def charge(self, amount: Decimal) -> None:
        ledger.credits_charge(**self.common, amount=amount, purpose=Purpose())
        self.model.spend(amount)

    def charge_key(self, key: str, amount: Decimal) -> None:
        known = self.model.charged.get(key)
        if known is not None and known != amount:
            with pytest.raises(Conflict):
                ledger.credits_charge(**self.common, amount=amount, purpose=Purpose(key))
            return
        ledger.credits_charge(**self.common, amount=amount, purpose=Purpose(key))
        if known is None:
            self.model.charged[key] = amount
            self.model.spend(amount)

    def refund(self, amount: Decimal) -> None:
        if amount > self.model.used:
            with pytest.raises(Conflict):
                ledger.credits_refund(**self.common, amount=amount, purpose=Purpose())
            return
        ledger.credits_refund(**self.common, amount=amount, purpose=Purpose())
        self.model.used -= amount
        self.model.suspended = self.model.blocked

    def hold(self, key: str, amount: Decimal) -> None:
        model = self.model
        expected: type[Exception] | None = None
        if key in model.settled or model.held.get(key, amount) != amount:
            expected = Conflict
        elif key not in model.held and model.room < amount:
            expected = QuotaExceeded
        if expected:
            with pytest.raises(expected):
                ledger.credits_hold(**self.common, amount=amount, key=key)
            return
        ledger.credits_hold(**self.common, amount=amount, key=key)
        model.held[key] = amount

    def settle(self, key: str, amount: Decimal) -> None:
        entry = ledger.hold_settle(key=key, amount=amount)
        assert (entry is None) == (key not in self.model.held and key not in self.model.settled)
        if self.model.held.pop(key, None) is not None:
            self.model.settled.add(key)
            self.model.spend(amount)

    def void(self, key: str) -> None:
        assert ledger.hold_void(key=key) == (self.model.held.pop(key, None) is not None)

    def expire(self, key: str) -> None:
        Hold.objects.filter(key=key).update(expires_at=timezone.now() - timedelta(seconds=1))
        assert ledger.holds_expire() == (self.model.held.pop(key, None) is not None)

    def set(self, limit: Decimal, overdraft: Decimal, thresholds: list[float]) -> None:
        ledger.quota_set(**self.common, limit=limit, overdraft=overdraft, action="block", thresholds=thresholds)
        model = self.model
        model.limit, model.overdraft, model.thresholds = limit, overdraft, thresholds
        model.fired, model.depleted = None, False
        model.suspended = model.blocked

    def reset(self) -> None:
        ledger.quota_reset(**self.common, actor="a")
        self.model.used, self.model.fired, self.model.depleted = Decimal(0), None, False
        self.model.suspended = False

    def compare(self) -> None:
        found = Balance.objects.filter(namespace_id=self.namespace.pk).first() or Balance()
        model = self.model
        assert (found.used, found.held) == (model.used, sum(model.held.values(), Decimal(0)))
        assert found.used >= 0
        assert passed_thresholds(self.namespace.account) == model.announced
        self.namespace.refresh_from_db()
        assert self.namespace.suspended_by_quota == model.suspended
        last = Entry.objects.order_by("-id").first()
        assert (last.balance_after if last else 0) == model.used


class Undo(Exception):
    """Rolls an example back."""


@pytest.mark.timeout(0)
def test_any_history_ends_as_the_model_says(api: Caller) -> None:
    default = Namespace.objects.get(account=api.account)
    subscribe(api.account)

    # Without shrinking, which takes minutes: the failing step is the last of those that ran.
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.lists(STEPS, min_size=LENGTH, max_size=LENGTH))
    def search(steps: list[tuple[Any, ...]]) -> None:
        try:
            with transaction.atomic():
                world = World(Namespace.objects.get(pk=default.pk))
                for name, *arguments in steps:
                    getattr(world, name)(*arguments)
                    world.compare()
                raise Undo
        except Undo:
            pass

    search()
