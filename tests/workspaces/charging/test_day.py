"""A simulated day of many workspaces through the real metering and charging, with everything that may go wrong: the
ledger has what the samples cost, to 0.1 %, and agrees with itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.db.models import Sum
from django.utils import timezone

from common.times import EPOCH
from credits.models import Balance, Entry, Rate, Unit
from namespaces.models import Namespace
from tests.callers import Caller
from tests.run_extent import WHOLE
from tests.workspaces.charging.day import HOUR, RATES, SimulatedHypervisor, SimulatedMachine
from tests.workspaces.charging.measuring import dying_at
from tests.workspaces.rows import make_host, make_workspace
from tests.workspaces.usage.measured import DirectWriter
from workspaces.charging import services as charging
from workspaces.host.metering.sampler import Sampler
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)

HOURS = 24
# What happens in an hour does not depend on how many there are.
WORKSPACES, AWAKE = (200, 70) if WHOLE else (80, 28)
MORNING, EVENING = 8, 16  # between them workspaces are awake
ROUND_SECONDS, ROUND_SECONDS_OF_NIGHT = 4, 60  # samples that are further apart than five leave a gap
CHARGE_SECONDS = 60
UNITS = (Unit.VCPU_HOUR, Unit.GB_HOUR, Unit.DISK_GB, Unit.NETWORK_GB)


class Day:
    """Each kind of event happens at random times, so many times in an hour (`EVENTS`)."""

    def __init__(self, account: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chosen = random.Random(42)
        namespaces = list(Namespace.objects.filter(account=account).order_by("slug"))
        self.host = make_host()
        machines = [self._machine(account, namespaces[number % len(namespaces)]) for number in range(WORKSPACES)]
        begin = timezone.now().replace(hour=0, minute=0, second=0, microsecond=137)
        self.hypervisor = SimulatedHypervisor(machines, begin.timestamp())
        for hour, rates in RATES[1:]:
            for unit, credits in zip(UNITS, rates, strict=True):
                since = begin + timedelta(hours=hour)
                Rate.objects.create(unit=unit, credits=Decimal(str(credits)), effective_from=since)
        self.charged_at = self.hypervisor.monotonic
        self.ends: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(timezone, "now", lambda: EPOCH + timedelta(seconds=self.hypervisor.wall))
        for _ in range(WORKSPACES):
            self.machine_sleeps()
        self.begin_vmhost()
        self.later(12.4 * HOUR, self.vmhost_dies)

    def _machine(self, account: Any, namespace: Namespace) -> SimulatedMachine:
        memory = self.chosen.choice([256, 512, 1024])
        row = make_workspace(account, namespace=namespace, host=self.host, memory_mb=memory, cpu_millis=2000)
        used = self.chosen.random() * 0.6, self.chosen.randrange(100_000), self.chosen.randrange(200_000)
        return SimulatedMachine(row.pk, memory, *used)

    def begin_vmhost(self) -> None:
        """One that was there before is gone, with what it had not written."""
        clocks: dict[str, Any] = {
            "monotonic": lambda: self.hypervisor.monotonic,
            "wall": lambda: self.hypervisor.wall,
        }
        self.sampler = Sampler(self.host.pk, self.hypervisor, **clocks)  # type: ignore[arg-type]
        self.sampler.writer = self.writer = DirectWriter()  # type: ignore[assignment]
        self.sampler._publisher.publish = lambda updates: None  # type: ignore[method-assign]

    # What happens

    def machines(self, *, up: bool) -> list[SimulatedMachine]:
        return [machine for machine in self.hypervisor.machines.values() if machine.is_up == up]

    def machine_crashes(self) -> None:
        """It is started again at once, before it was seen to have ended."""
        if running := self.machines(up=True):
            self.chosen.choice(running).start()

    def machine_sleeps(self) -> None:
        if running := self.machines(up=True):
            machine = self.chosen.choice(running)
            machine.end()
            Workspace.objects.filter(pk=machine.key).update(status=Status.SLEEPING, ready=False)

    def machine_wakes(self) -> None:
        if asleep := self.machines(up=False):
            machine = self.chosen.choice(asleep)
            machine.start()
            Workspace.objects.filter(pk=machine.key).update(status=Status.RUNNING, ready=True)

    def clock_is_ahead(self) -> None:
        """Of the host, for some minutes; ticks and prices go by it."""
        ahead = self.chosen.uniform(30, 5000)
        self.hypervisor.wall += ahead
        self.later(self.chosen.uniform(60, 400), lambda: self.set_back(ahead))

    def set_back(self, seconds: float) -> None:
        self.hypervisor.wall -= seconds

    def hypervisor_is_away(self) -> None:
        self.hypervisor.away = True
        self.later(self.chosen.uniform(4, 60), lambda: setattr(self.hypervisor, "away", False))

    def database_is_away(self) -> None:
        writer = self.writer
        writer.away = writer.is_behind = True

        def end() -> None:
            writer.away = writer.is_behind = False

        self.later(self.chosen.uniform(30, 300), end)

    def worker_is_killed(self) -> None:
        with dying_at(self.chosen.randrange(20)):
            charging.charge_metered()

    def vmhost_dies(self) -> None:
        """What is lost is the memory of a tick: it counts only while it is observed."""
        if not self.writer.is_behind:
            self.begin_vmhost()

    EVENTS: tuple[tuple[float, str], ...] = (
        (20, "machine_crashes"),
        (25, "machine_sleeps"),
        (0.3, "clock_is_ahead"),
        (2, "hypervisor_is_away"),
        (1, "database_is_away"),
        (10, "worker_is_killed"),
    )

    # Time

    def later(self, seconds: float, end: Callable[[], None]) -> None:
        self.ends.append((self.hypervisor.monotonic + seconds, end))

    def pass_by(self) -> None:
        """One round of the sampler after another."""
        begin = self.hypervisor.monotonic
        while (hour := (self.hypervisor.monotonic - begin) / HOUR) < HOURS:
            self.end_what_is_due()
            running = bool(self.machines(up=True))
            if MORNING <= hour < EVENING:
                self.begin_events()
                while len(self.machines(up=True)) < AWAKE:
                    self.machine_wakes()
            elif running:
                self.machine_sleeps()
            self.hypervisor.pass_time(ROUND_SECONDS if running else ROUND_SECONDS_OF_NIGHT, self.chosen)
            self.sampler.run_once()
            if self.hypervisor.monotonic - self.charged_at >= CHARGE_SECONDS:
                self.charged_at = self.hypervisor.monotonic
                charging.charge_metered()

    def end_what_is_due(self) -> None:
        for at, end in [each for each in self.ends if each[0] <= self.hypervisor.monotonic]:
            end()
            self.ends.remove((at, end))

    def begin_events(self) -> None:
        for often, name in self.EVENTS:
            if self.chosen.random() < often * ROUND_SECONDS / HOUR:
                getattr(self, name)()

    def finish(self) -> None:
        """Everything that was metered is written and charged."""
        for _, end in self.ends:
            end()
        self.sampler.flush(everything=True)
        assert not self.writer.waiting
        while charging.charge_metered():
            pass


@pytest.mark.campaign
def test_the_ledger_of_a_day_has_what_the_samples_cost(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workspaces sleep at night; by day they crash, sleep and wake, and everything around them fails now and then."""
    Namespace.objects.create(account=api.account, name="Team", slug="team")
    day = Day(api.account, monkeypatch)
    day.pass_by()
    day.finish()
    charged = {
        key: float(credits)
        for key, credits in Entry.objects.values_list("workspace_id").annotate(sum=Sum("amount")).order_by()
    }
    expected = {key: machine.credits for key, machine in day.hypervisor.machines.items()}
    assert charged.keys() == {key for key, credits in expected.items() if credits}
    assert sum(charged.values()) == pytest.approx(sum(expected.values()), rel=0.001)
    assert float(sum(Balance.objects.values_list("used", flat=True))) == pytest.approx(sum(charged.values()))
    call_command("ledger_check")
