"""The metering half of the state machine: machines, what a vmhost sees of them, and what becomes of its ticks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection

from tests.workspaces.charging.expected import Delta, ExpectedLedger, ExpectedMachine
from tests.workspaces.charging.integration import NOTHING, Counters, Raw, plus
from vmbackend.samples import Sample
from workspaces.host.metering.meter import Meter, MeterTarget, UsageDelta
from workspaces.host.metering.roster import counted_samples
from workspaces.host.metering.writer import write_deltas

COUNTERS = ("cpu_time_ns", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")
# Django's own statements around a transaction: where a connection ends there, the database rolls back all the same.
AROUND = ("SAVEPOINT", "RELEASE", "ROLLBACK")


class Died(BaseException):
    """The process ends here."""


@dataclass
class Death:
    happened: bool = False


@contextmanager
def dying_at(statement: int) -> Iterator[Death]:
    """The process ends at that statement to the database, counted from 0, or not at all where there are fewer."""
    death, seen = Death(), 0

    def execute(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal seen
        if not sql.startswith(AROUND):
            if seen == statement:
                death.happened = True
                raise Died
            seen += 1
        return run(sql, params, many, context)

    try:
        with connection.execute_wrapper(execute):
            yield death
    except Died:
        pass


@dataclass
class Machine:
    """What the hypervisor shows of a machine, and what is expected of its metering."""

    target: MeterTarget
    expected: ExpectedMachine
    process: int = 1
    counters: Counters = NOTHING
    metered: Counters = NOTHING  # the sum of its records
    memory: int = 0
    is_over: bool = False

    def use(self, amounts: Counters, kind: str) -> Raw:
        if kind == "restart":
            self.process, self.counters = self.process + 1, amounts
        elif kind == "backwards":
            self.counters = tuple(max(now - less, 0) for now, less in zip(self.counters, amounts, strict=True))
        else:
            self.counters = plus(self.counters, amounts)
        return Raw(self.process, self.counters)


@dataclass
class Tick:
    """What a vmhost has taken, and was not written yet."""

    number: int
    deltas: dict[str, UsageDelta]
    expected: dict[str, Delta]


class MeteringWorld:
    """Machines, one vmhost after another, and their ticks. `ledger` gets the records."""

    def __init__(self, machines: dict[str, Machine], ledger: ExpectedLedger) -> None:
        self.machines, self.ledger = machines, ledger
        self.milliseconds = 1_000_000
        self.last_tick = 0
        self.meters: dict[str, Meter] = {}
        self.late: list[Tick] = []

    def sample(self, name: str, amounts: Counters, kind: str, wall: float) -> None:
        """At the time that `milliseconds` says."""
        machine = self.machines[name]
        if machine.is_over:
            return
        raw = machine.use(amounts, kind)
        shown = Sample(wall, f"process {raw.process}", **dict(zip(COUNTERS, raw.counters, strict=True)))
        if name not in self.meters:
            self.meters[name] = Meter(machine.target, *counted_samples([name])[name])
        self.meters[name].add_sample(shown, machine.target, self.milliseconds / 1000)
        machine.expected.see(raw, self.milliseconds)

    def take(self, wall: int) -> Tick:
        self.last_tick = tick = max(self.last_tick + 1, wall)
        deltas = {name: delta for name, meter in self.meters.items() if (delta := meter.take_delta(tick, None))}
        expected = {name: self.machines[name].expected.take(tick) for name in self.meters}
        found = {name: delta for name, delta in expected.items() if delta is not None}
        assert found.keys() == deltas.keys()
        return Tick(tick, deltas, found)

    def write(self, tick: Tick) -> None:
        write_deltas(tick.deltas, tick.number)
        self.count(tick)

    def count(self, tick: Tick) -> None:
        """That it was written is expected from now on."""
        for name, delta in tick.expected.items():
            machine = self.machines[name]
            record = machine.expected.write(name, delta)
            if record is not None:
                self.ledger.pending.append(record)
                machine.metered = plus(machine.metered, record.used)
                machine.memory += record.memory

    def die(self) -> None:
        """The vmhost ends; what it was about to write may still be written."""
        self.meters.clear()
        self.last_tick = 0
        for machine in self.machines.values():
            machine.expected.forget()
            machine.is_over = not machine.expected.has_row  # the next vmhost does not meter what is deleted
