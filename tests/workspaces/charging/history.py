"""Random histories of money: what is charged, held, metered, set and priced, beside what is expected of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import count
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from common.errors import Conflict, QuotaExceeded
from common.request_origin import NO_ORIGIN
from common.times import EPOCH
from credits import defaults, ledger
from credits.amounts import amount_of_stored
from credits.ledger import Purpose
from credits.ledger_check import Counts, balance_drifts
from credits.models import Rate, Service
from credits.services import rate_save
from namespaces.services import namespace_activate, namespace_suspend
from tests.workspaces.charging.expected import STOP, ExpectedBalance, ExpectedLedger, Place, Quota
from tests.workspaces.charging.measuring import Machine, MeteringWorld, dying_at
from tests.workspaces.charging.observed import observed_state
from workspaces.charging import services as charging
from workspaces.charging.check import all_drifts, charge_drifts

MOST = 10**15  # 10,000,000 credits
SECOND = 10**6
small, any_amount = (
    st.integers(1, 500),
    st.one_of(st.integers(1, 500), st.integers(1, 500), st.integers(MOST - 3, MOST)),
)
places = st.integers(0, 3)
keys = st.sampled_from("abc")
# So many nanoseconds of CPU time cost half of the smallest amount by the first rates.
HALF = 18_000
used = st.tuples(
    st.integers(0, 300).map(lambda n: n * HALF),
    *[st.sampled_from([0, 0, 1, 500, 1_000, 10**6]) for _ in range(4)],
)

quotas = st.tuples(
    st.one_of(st.integers(0, 1500), st.integers(0, 75).map(lambda n: n * 20), st.just(MOST)),
    st.sampled_from([0, 0, 100, MOST]),
    st.sampled_from(["block", STOP]),
    st.sampled_from([[], [50], [80, 95], [95, 33.333, 80, 80], [100, 250]]),
)
services = st.sampled_from(["sandbox", "ai"])
units = st.sampled_from(["vcpu_hour", "gb_hour", "disk_gb", "network_gb"])


def steps(name: str, *arguments: Any) -> Any:
    return st.tuples(st.just(name), *arguments)


def sample_steps() -> Any:
    return steps(
        "sample",
        st.sampled_from([(0,), (1,), (2,), (0, 1), (0, 1, 2), (0, 1, 2)]),
        st.lists(used, min_size=1, max_size=3),
        st.sampled_from(["grow", "grow", "grow", "restart", "backwards"]),
        st.sampled_from([1000, 1000, 1000, 4500, 7000]),
    )


def tick_steps() -> Any:
    return steps("tick", st.sampled_from(["written", "written", "doubled", "late", "given up"]))


# Each as often as it stands here; of equal objects only one would count. Not as rules of their own, of which Hypothesis
# leaves most out of an example.
STEPS = st.one_of(
    steps("charge", places, any_amount),
    steps("charge_by_key", places, keys, st.integers(1, 3)),
    steps("charge_again_by_key", st.integers(0, 9)),
    steps("refund", places, any_amount),
    steps("hold", places, keys, any_amount, st.sampled_from([10, 900])),
    steps("hold", places, keys, small, st.sampled_from([10, 900])),
    steps("hold_many", places, st.lists(small, min_size=3, max_size=3)),
    steps("charge_up_to", places, st.integers(0, 1)),
    steps("set_and_charge_up_to", places, quotas, st.integers(0, 1)),
    steps("settle", places, keys, any_amount),
    steps("void", places, keys),
    steps("expire"),
    steps("set", places, quotas),
    steps("reset", places),
    steps("set_default", services, quotas, st.booleans()),
    steps("change_rate", units, st.sampled_from([0, 1, 10**8, 123_456_789]), st.sampled_from([-3600, 59, 61, 600])),
    steps("suspend_or_activate_by_hand"),
    steps("clock_is_set", st.sampled_from([1, 30, 61, 600, 3600, 86400, -1, -50])),
    *(sample_steps() for _ in range(6)),
    *(tick_steps() for _ in range(5)),
    steps("tick_that_dies", st.integers(0, 9)),
    steps("late_tick_arrives", st.integers(0, 5), st.booleans()),
    steps("vmhost_dies", st.booleans()),
    steps("tick_of_a_former_vmhost", st.lists(used, min_size=1, max_size=2), st.sampled_from(["grow", "restart"])),
    *(steps("charge_metered", st.integers(1, 2), st.sampled_from([0, 0, 600, 4000])) for _ in range(3)),
    *(steps("charge_metered_and_die", st.integers(0, 30)) for _ in range(2)),
)


def fields_of(quota: Quota) -> dict[str, Any]:
    """As the services take them."""
    limit, overdraft, action, thresholds = quota
    amounts = {"limit": amount_of_stored(limit), "overdraft": amount_of_stored(overdraft)}
    return {**amounts, "action": action, "thresholds": thresholds}


class MoneyHistory(RuleBasedStateMachine):
    """Each example is rolled back. `world`: what the test made before, see test_model.py."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.world = world
        self.ledger: ExpectedLedger = world.new_ledger()
        machines: dict[str, Machine] = world.new_machines()
        self.metering = MeteringWorld(machines, self.ledger)
        self.numbers = count()
        self.expiries: dict[str, int] = {}
        self.by_hand = False
        self.newest_charged = 0
        self.is_checked = True
        self.rates_agree = True

    @rule(step=STEPS)
    def make(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        self.begin_step()
        getattr(self, name)(*arguments)
        self.end_step()

    # The clock

    def pass_time(self, microseconds: int = 1001) -> int:
        self.world.now += microseconds
        return int(self.world.now)

    def clock_is_set(self, seconds: int) -> None:
        self.pass_time(seconds * SECOND)

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
        key = f"{number}{key}"
        known = self.ledger.keys.get(key)
        self.refused(
            Conflict if known not in (None, amount) else None,
            lambda: ledger.credits_charge(**self.where(number), amount=amount_of_stored(amount), purpose=Purpose(key)),
        )
        if known is None:
            self.ledger.keys[key] = amount
            self.ledger.charge(self.place(number), amount)

    def charge_again_by_key(self, which: int) -> None:
        """Nothing changes, not even a quota."""
        known = sorted((key, amount) for key, amount in self.ledger.keys.items() if not key.startswith("hold"))
        if not known:
            return
        key, amount = known[which % len(known)]
        entry = ledger.credits_charge(**self.where(int(key[0])), amount=amount_of_stored(amount), purpose=Purpose(key))
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
        key, place, now = f"{number}{key}", self.place(number), self.pass_time()
        balance = self.ledger.balance(place)
        limited = ExpectedBalance(balance.used, dict(balance.holds), balance.limit, balance.overdraft)
        if limited.limit is None and place[1] in self.ledger.defaults:
            limited.set(*self.ledger.defaults[place[1]])
        expected: type[Exception] | None = None
        if f"hold:{key}" in self.ledger.keys or balance.holds.get(key, amount) != amount:
            expected = Conflict
        elif key not in balance.holds and not limited.has_room(amount):
            expected = QuotaExceeded
        until = EPOCH + timedelta(microseconds=now + seconds * SECOND)
        self.refused(
            expected,
            lambda: ledger.credits_hold(**self.where(number), amount=amount_of_stored(amount), key=key, until=until),
        )
        if expected is None and key not in balance.holds:
            self.ledger.apply_default(place)
            balance.holds[key], self.expiries[key] = amount, now + seconds * SECOND

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
        key, balance = f"{number}{key}", self.ledger.balance(self.place(number))
        entry = ledger.hold_settle(key=key, amount=amount_of_stored(amount))
        if balance.holds.pop(key, None) is not None:
            self.ledger.keys[f"hold:{key}"] = amount
            balance.charge(amount)
        known = self.ledger.keys.get(f"hold:{key}")
        assert (None if entry is None else entry.amount) == (None if known is None else amount_of_stored(known))

    def void(self, number: int, key: str) -> None:
        key, balance = f"{number}{key}", self.ledger.balance(self.place(number))
        assert ledger.hold_void(key=key) == (balance.holds.pop(key, None) is not None)

    def expire(self) -> None:
        now, expired = self.pass_time(), 0
        for balance in self.ledger.balances.values():
            for key in [key for key in balance.holds if self.expiries[key] <= now]:
                del balance.holds[key]
                expired += 1
        assert ledger.holds_expire() == expired

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

    # Metering

    def sample(self, machines: tuple[int, ...], amounts: list[Any], kind: str, milliseconds: int) -> None:
        for each in amounts:
            wall = self.pass_time(milliseconds * 1000)
            self.metering.milliseconds += milliseconds
            for number in machines:
                self.metering.sample(self.world.names[number], each, kind, wall / SECOND)

    def tick(self, fate: str) -> None:
        taken = self.metering.take(self.pass_time())
        if fate == "late":
            self.metering.late.append(taken)
        elif fate != "given up":
            for _ in range(2 if fate == "doubled" else 1):
                self.metering.write(taken)

    def tick_that_dies(self, statement: int) -> None:
        taken = self.metering.take(self.pass_time())
        with dying_at(statement) as death:
            self.metering.write(taken)
        if death.happened:
            self.metering.die()

    def late_tick_arrives(self, number: int, again: bool) -> None:
        late = self.metering.late
        if not late:
            return
        tick = late[number % len(late)]
        if not again:
            late.remove(tick)
        self.metering.write(tick)

    def tick_of_a_former_vmhost(self, amounts: list[Any], kind: str) -> None:
        """Its commit comes after the next vmhost's, and that goes on."""
        self.sample((0, 1, 2), amounts, "grow", 1000)
        former = self.metering.take(self.pass_time())
        self.metering.die()
        self.sample((0, 1), amounts, kind, 1000)
        self.tick("written")
        self.metering.write(former)
        self.sample((0, 1), amounts, "grow", 1000)
        self.tick("written")

    def vmhost_dies(self, keeps: bool) -> None:
        """`keeps`: what it sent to the database may still be carried out."""
        self.metering.die()
        if not keeps:
            self.metering.late.clear()

    # Passes

    def charge_metered(self, times: int, seconds: int) -> None:
        """The worker was away for some seconds."""
        self.pass_time(seconds * SECOND)
        for _ in range(times):
            self.pass_time()
            self.newest_charged = max([self.newest_charged, *(record.tick for record in self.ledger.pending)])
            expected = [self.ledger.charge_batch(charging.BATCH) for _ in range(charging.MAX_BATCHES)]
            assert charging.charge_metered() == sum(expected)

    def charge_metered_and_die(self, statement: int) -> None:
        self.pass_time()
        self.newest_charged = max([self.newest_charged, *(record.tick for record in self.ledger.pending)])
        with dying_at(statement):
            charging.charge_metered()
        found = observed_state()
        while self.expected_state() != found and self.ledger.charge_batch(charging.BATCH):
            pass  # some of its transactions were committed, none in part

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

    def expected_state(self) -> dict[str, Any]:
        return self.world.expected_state(self.ledger, self.metering, self.by_hand)

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
