"""Random histories of money beside a model of dictionaries and an integration of the raw samples (history.py).

In `make test` 10,000 steps, always the same ones, on PostgreSQL the first 2,500; in `make fuzz-money` as many as STEPS
says, from another SEED each time, in parts that are spread over processes. Each part that has ended well is a line of
the file PROGRESS; a run that finds it there leaves it out.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from common.times import EPOCH
from credits.amounts import stored_amount
from credits.models import Rate
from namespaces.models import Namespace
from tests.callers import Caller
from tests.run_extent import WHOLE
from tests.webhooks.outbox import subscribe
from tests.workspaces.charging.expected import ExpectedLedger, ExpectedMachine, Place
from tests.workspaces.charging.history import MoneyHistory
from tests.workspaces.charging.measuring import Machine, MeteringWorld
from tests.workspaces.charging.metered_history import SECOND
from tests.workspaces.rows import make_workspace
from workspaces.charging import services as charging
from workspaces.host.metering.meter import MeterTarget

pytestmark = pytest.mark.django_db

LENGTH = 50  # steps of one history
STEPS, SEED = (int(os.environ.get(name, "0")) for name in ("STEPS", "SEED"))
# Of what 10,000 steps reach, 2,500 leave out three lines.
SHORT = 10_000 if WHOLE else 2_500
PART = 5_000 if STEPS else SHORT
PROGRESS = Path(os.environ["PROGRESS"]) if os.environ.get("PROGRESS") else None


def part_seed(part: int) -> int:
    return SEED * 100_000 + part


def parts_left() -> list[int]:
    """The parts of this run that no earlier one has ended well."""
    lines = PROGRESS.read_text().splitlines() if PROGRESS and PROGRESS.exists() else []
    ended = {int(line.split()[1]) for line in lines if line.startswith("seed ")}
    return [part for part in range(max(1, -(-STEPS // PART))) if part_seed(part) not in ended]


def note_progress(part: int, steps: int, seconds: float) -> None:
    """One write for a line: processes share the file."""
    if PROGRESS is not None:
        with PROGRESS.open("a") as file:
            file.write(f"seed {part_seed(part)} passed, {steps} steps in {seconds:.0f} s\n")


class Worlds:
    """What all examples begin with: two namespaces, two workspaces, and a machine whose workspace is deleted."""

    def __init__(self, api: Caller) -> None:
        self.account = api.account
        one = Namespace.objects.get(account=api.account)
        two = Namespace.objects.create(account=api.account, name="Two", slug="two")
        self.namespaces = {row.pk: row for row in (one, two)}
        self.places: list[Place] = [(row.pk, service) for row in (one, two) for service in ("sandbox", "ai")]
        self.names = [make_workspace(api.account, namespace=one).pk for _ in range(2)] + ["ws_deleted"]
        self.rates = [
            (rate.unit, (rate.effective_from - EPOCH) // timedelta(microseconds=1), stored_amount(rate.credits))
            for rate in Rate.objects.all()
        ]
        self.steps = 0  # of all histories
        # The simulated clock, in microseconds since 1970.
        self.begin = self.now = int(timezone.now().timestamp()) * SECOND

    def new_ledger(self) -> ExpectedLedger:
        """What an example begins with."""
        self.now = self.begin
        ledger = ExpectedLedger()
        for rate in self.rates:
            ledger.prices.add(*rate)
        return ledger

    def new_machines(self) -> dict[str, Machine]:
        made = {}
        for name, place in zip(self.names, (self.places[0], self.places[0], self.places[2]), strict=True):
            target = MeterTarget(name, self.account.pk, place[0], 1000, 512, True, 0)
            made[name] = Machine(target, ExpectedMachine(place, 512, has_row=name != "ws_deleted"))
        return made

    def expected_state(self, ledger: ExpectedLedger, metering: MeteringWorld, by_hand: bool) -> dict[str, Any]:
        """As `observed_state` has it."""
        balances = ledger.balances
        return {
            "balances": {
                place: (each.used, each.held, each.limit, each.overdraft, each.action, each.fired, each.depleted)
                for place, each in balances.items()
                if each.used or each.held or each.limit is not None
            },
            "namespaces": {key: self._namespace(ledger, key, by_hand) for key in self.namespaces},
            "announced": {place: each.announced for place, each in balances.items() if each.announced},
            "entries": {place: each.used for place, each in balances.items() if each.used},
            "metered": {
                name: (each.metered[0], sum(each.metered[1:3]), sum(each.metered[3:]), each.memory)
                for name, each in metering.machines.items()
                if each.memory or any(each.metered)
            },
            "left": len(ledger.pending),
        }

    def _namespace(self, ledger: ExpectedLedger, key: str, by_hand: bool) -> tuple[Any, ...]:
        by_hand = by_hand and key == self.places[2][0]
        suspended = ledger.is_suspended(key)
        return ("suspended" if suspended or by_hand else "active", suspended, by_hand, ledger.is_stopped(key))


@pytest.fixture
def worlds(api: Caller, monkeypatch: pytest.MonkeyPatch) -> Worlds:
    made = Worlds(api)
    subscribe(api.account)
    monkeypatch.setattr(timezone, "now", lambda: EPOCH + timedelta(microseconds=made.now))
    monkeypatch.setattr(charging, "BATCH", 3)
    return made


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", parts_left())
def test_any_history_of_money_ends_as_expected(worlds: Worlds, part: int) -> None:
    begun = time.monotonic()
    run_state_machine_as_test(
        seed(part_seed(part))(lambda: MoneyHistory(worlds)),
        settings=settings(
            max_examples=PART // LENGTH,
            stateful_step_count=LENGTH,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # Without shrinking, which takes minutes: the failing step is the last of those that ran.
            phases=[Phase.generate],
            print_blob=True,
        ),
    )
    note_progress(part, worlds.steps, time.monotonic() - begun)
