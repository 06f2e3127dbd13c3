"""A simulated day: machines on a hypervisor that only counts, and the clocks of their host.

What they used is priced here from the samples that were taken, in floating-point numbers and by rates of its own:
without the product's arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

from vmbackend.errors import BackendUnavailable
from vmbackend.samples import Sample

HOUR = 3600.0
# Credits for a CPU hour, a GB hour, a GB of disk and of network, by the hour of the day from which they are valid.
RATES = [(0, (1.0, 0.5, 0.01, 0.1)), (10, (1.5, 0.5, 0.02, 0.1)), (14, (0.8, 0.25, 0.01, 0.2))]
OBSERVED_SECONDS = 5.0


@dataclass
class SimulatedMachine:
    """Its process counts from zero each time that it starts."""

    key: str
    memory_mb: int
    cpus: float  # busy on average
    disk: int  # bytes a second
    network: int
    process: int = 1
    is_up: bool = True
    counters: list[float] = field(default_factory=lambda: [0.0] * 5)
    # Of the integration: the newest sample, when it was taken (monotonic), and what all of them cost.
    seen: tuple[int, list[float]] | None = None
    seen_at: float = 0.0
    credits: float = 0.0

    def run(self, seconds: float, busy: float) -> None:
        if self.is_up:
            used = (self.cpus * 1e9, self.disk, self.disk / 3, self.network, self.network * 2)
            self.counters = [old + seconds * busy * new for old, new in zip(self.counters, used, strict=True)]

    def end(self) -> None:
        self.is_up = False

    def start(self) -> None:
        self.process, self.is_up, self.counters = self.process + 1, True, [0.0] * 5


class SimulatedHypervisor:
    """A driver that answers for samples alone. `away`: it does not answer."""

    def __init__(self, machines: list[SimulatedMachine], day: float) -> None:
        self.machines = {machine.key: machine for machine in machines}
        self.day = day  # when it begins, on the host's clock
        self.wall, self.monotonic = day, 1000.0
        self.away = False

    def samples(self, machine_ids: Collection[str]) -> dict[str, Sample]:
        if self.away:
            raise BackendUnavailable("away")
        return {key: self._shown(self.machines[key]) for key in machine_ids if self.machines[key].is_up}

    def _shown(self, machine: SimulatedMachine) -> Sample:
        self._integrate(machine)
        return Sample(self.wall, f"{machine.key} {machine.process}", *(int(value) for value in machine.counters))

    def _integrate(self, machine: SimulatedMachine) -> None:
        before = machine.seen[1] if machine.seen and machine.seen[0] == machine.process else [0.0] * 5
        cpu, read, written, received, sent = (new - old for new, old in zip(machine.counters, before, strict=True))
        per_cpu, per_memory, per_disk, per_network = rates_at((self.wall - self.day) / HOUR)
        elapsed = self.monotonic - machine.seen_at
        observed = elapsed if machine.seen and elapsed <= OBSERVED_SECONDS else 0.0
        machine.credits += (
            cpu / 1e9 / HOUR * per_cpu
            + machine.memory_mb / 1024 * observed / HOUR * per_memory
            + (read + written) / 1e9 * per_disk
            + (received + sent) / 1e9 * per_network
        )
        machine.seen, machine.seen_at = (machine.process, machine.counters), self.monotonic

    def pass_time(self, seconds: float, chosen: random.Random) -> None:
        """Machines run, each a little differently."""
        self.wall += seconds
        self.monotonic += seconds
        for machine in self.machines.values():
            machine.run(seconds, chosen.random() * 2)


def rates_at(hour: float) -> tuple[float, float, float, float]:
    return next(rates for begin, rates in reversed(RATES) if begin <= max(hour, 0))
