"""What is metered in a random history of money (history.py): samples, ticks, deaths of vmhosts, passes of charging."""

from __future__ import annotations

from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from tests.workspaces.charging.expected import ExpectedLedger
from tests.workspaces.charging.measuring import Machine, MeteringWorld, dying_at
from tests.workspaces.charging.observed import observed_state
from workspaces.charging import services as charging

SECOND = 10**6


class MeteredHistory(RuleBasedStateMachine):
    """`world`: what the test made before, see test_model.py."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        self.world = world
        self.ledger: ExpectedLedger = world.new_ledger()
        machines: dict[str, Machine] = world.new_machines()
        self.metering = MeteringWorld(machines, self.ledger)
        self.by_hand = False
        self.newest_charged = 0

    # The clock

    def pass_time(self, microseconds: int = 1001) -> int:
        self.world.now += microseconds
        return int(self.world.now)

    def clock_is_set(self, seconds: int) -> None:
        self.pass_time(seconds * SECOND)

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

    def expected_state(self) -> dict[str, Any]:
        return self.world.expected_state(self.ledger, self.metering, self.by_hand)
