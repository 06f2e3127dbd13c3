"""The sampler of a host: once a second, in a thread of its own, it meters the machines that are up.

One call to the hypervisor for all of them but those on which an operation is being carried out (`busy.py`), then the
meters (`meter.py`), then Redis. Other threads write to the database (`writer.py`) and query the guests (`disks.py`). No
failure ends the thread: the next second is the retry.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

import redis
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connections

from vmbackend.driver import Driver
from vmbackend.errors import BackendError
from vmbackend.samples import Sample
from workspaces.host.metering.busy import BusyMachines
from workspaces.host.metering.disks import DiskMeter
from workspaces.host.metering.health import store_health
from workspaces.host.metering.meter import Meter, MeterTarget, UsageDelta
from workspaces.host.metering.roster import counted_samples, meter_targets
from workspaces.host.metering.sample_publisher import SamplePublisher, SampleUpdate
from workspaces.host.metering.writer import UsageWriter
from workspaces.models.operation import OperationState

logger = logging.getLogger(__name__)

MIDDLE, MIN_WAIT = 0.5, 0.1  # of a second
PER_TRANSACTION = 250  # machines; charging waits for the end of a transaction that writes their records
SET_BACK = 60_000_000  # microseconds
REDIS_RETRY_SECONDS = 5.0  # after a failure
STOP_SECONDS = 5.0


class FailureLog:
    """Log of a failure: one line when it begins and one when it ends, not one every second."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: float | None = None

    def begin(self, exc: Exception) -> None:
        if self._since is None:
            self._since = time.monotonic()
            logger.warning("%s: %s", self._what, exc)

    def end(self) -> None:
        if self._since is not None:
            logger.warning("%s: works again after %.0f s", self._what, time.monotonic() - self._since)
            self._since = None


def until_next_round(wall: float) -> float:
    """Return the seconds until the middle of a second: a round that is a little early or late still falls into its own
    second.

    A round that took too long is followed by a later one, never by two at once.
    """
    wait = (MIDDLE - wall) % 1.0
    return wait if wait > MIN_WAIT else wait + 1.0


class Sampler:
    """Sampler of the machines of one host. `tick` is one round; `start` has a thread make a round every second."""

    def __init__(
        self,
        host_id: str,
        driver: Driver,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._host_id = host_id
        self._driver = driver
        self._monotonic = monotonic
        self._wall = wall
        self._meters: dict[str, Meter] = {}
        self._targets: dict[str, MeterTarget] = {}
        self._begun: set[str] = set()  # machines on which an operation began since they were last submitted
        self._flush_at = monotonic() + settings.ENV.metering_seconds
        self._no_redis_until = 0.0
        self._publisher = SamplePublisher(host_id)
        self._failures = {what: FailureLog(f"sampler, {what}") for what in ("database", "hypervisor", "redis")}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
        self.writer = UsageWriter(host_id)
        self.disks = DiskMeter(driver)
        self._busy = BusyMachines(driver, monotonic)

    def start(self) -> None:
        self.writer.start()
        self.disks.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop metering and write the metered usage. Harmless if metering never started."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
            self.disks.stop()
            self.flush(everything=True)
            self.writer.stop()
        self._busy.stop()
        self._publisher.close()

    def run_once(self) -> None:
        """Make one round: which machines are up, their samples, the updates for readers; every tick the writes."""
        self._confirm_written()
        self._refresh()
        self._store_health()
        now = self._monotonic()
        self._publish(self._measure(self._samples(), now), now)
        if now >= self._flush_at:
            if not self.writer.is_behind:
                self.flush()
            self._flush_at = now + settings.ENV.metering_seconds
        elif not self.writer.is_behind:
            self._flush_between_ticks()

    def flush(self, *, everything: bool = False) -> None:
        """Submit metered usage to the writer; `everything`: including the current minute."""
        self._submit(list(self._meters), everything=everything)
        self._begun.clear()
        self._drop_idle_meters()

    def _flush_between_ticks(self) -> None:
        """Submit what a vmhost that dies now could lose for good. A machine may end if it is no longer metered or if an
        operation began on it. A machine that this process never wrote may have been metered by many that died within
        their first tick.
        """
        ended = [key for key, meter in self._meters.items() if key not in self._targets and meter.has_unsubmitted]
        new = [key for key, meter in self._meters.items() if key in self._targets and not meter.submitted_once]
        self._submit(ended, everything=True)
        begun = [key for key in self._begun.difference(ended, new) if key in self._meters]
        self._submit(new + begun, everything=False)
        self._begun.clear()

    def _submit(self, keys: list[str], *, everything: bool) -> None:
        wall = self._wall()
        for first in range(0, len(keys), PER_TRANSACTION):
            chunk = keys[first : first + PER_TRANSACTION]
            tick = self._free_tick(wall, chunk)
            deltas: dict[str, UsageDelta] = {}
            for key in chunk:
                delta = self._meters[key].take_delta(tick, None if everything else wall)
                if delta is not None:
                    deltas[key] = delta
            if deltas:
                self.writer.submit(tick, deltas)

    def _free_tick(self, wall: float, keys: Iterable[str]) -> int:
        """Return the time in microseconds, or a later one: an earlier tick of these machines would count as written
        already.

        If the clock was set back by more than a minute, return the time as it is now: prices and reports go by it.
        """
        tick, taken = int(wall * 1_000_000), set[int]()
        for meter in map(self._meters.__getitem__, keys):
            taken |= {meter.submitted, *meter.in_flight}
        tick = max([tick, *(earlier + 1 for earlier in taken if earlier - tick < SET_BACK)])
        while tick in taken:
            tick += 1
        return tick

    def _work(self) -> None:
        while not self._ended.wait(until_next_round(self._wall())):
            try:
                close_old_connections()
                self.run_once()
            except Exception:
                logger.exception("a round of the sampler failed")
        connections.close_all()

    def _refresh(self) -> None:
        """Read the machines to meter, and the counters of new ones. Without the database the former ones stay."""
        try:
            targets = meter_targets(self._host_id)
            new = [key for key in targets if key not in self._meters]
            for key, (last, tick) in (counted_samples(new) if new else {}).items():
                self._meters[key] = Meter(targets[key], last, tick)
            self._begun |= {key for key, target in targets.items() if target.operation and not self._is_busy(key)}
            self._targets = targets
            # A guest that boots or stops does not answer.
            self.disks.machines = [key for key, target in targets.items() if not target.operation]
            self._failures["database"].end()
        except DatabaseError as exc:
            self._failures["database"].begin(exc)

    def _store_health(self) -> None:
        """Store the reports on guests. Without the database they wait."""
        reports = list(self.disks.reports)
        if not reports:
            return
        try:
            store_health(reports)
        except DatabaseError as exc:
            self._failures["database"].begin(exc)
            return
        for _ in reports:
            self.disks.reports.popleft()

    def _is_busy(self, key: str) -> bool:
        return key in self._targets and bool(self._targets[key].operation)

    def _samples(self) -> dict[str, Sample]:
        apart = [key for key, target in self._targets.items() if target.operation == OperationState.RUNNING]
        together = list(self._targets.keys() - set(apart)) if apart else list(self._targets)
        try:
            samples = self._driver.samples(together) if together else {}
            self._failures["hypervisor"].end()
        except BackendError as exc:
            self._failures["hypervisor"].begin(exc)
            samples = {}
        for key, (asked_at, sample) in self._busy.samples(apart).items():
            if key in self._targets and key not in samples and not self._meters[key].was_sampled_after(asked_at):
                samples[key] = sample
        return samples

    def _measure(self, samples: dict[str, Sample], now: float) -> list[SampleUpdate]:
        updates = []
        for key, sample in samples.items():
            target, meter = self._targets[key], self._meters[key]
            point, ten_seconds = meter.add_sample(sample, target, now)
            meter.disk = self.disks.latest.get(key)
            second = point if target.tracking else None
            updates.append(SampleUpdate(key, target.reset_count, meter.live_state(point), second, ten_seconds))
        for key, meter in self._meters.items():
            if meter.ten_seconds is not None and key not in samples and (ten_seconds := meter.end_ten_seconds()):
                updates.append(SampleUpdate(key, meter.target.reset_count, ten_seconds=ten_seconds))
        return updates

    def _publish(self, updates: list[SampleUpdate], now: float) -> None:
        if not updates or now < self._no_redis_until:
            return
        try:
            self._publisher.publish(updates)
            self._failures["redis"].end()
        except redis.RedisError as exc:
            self._no_redis_until = now + REDIS_RETRY_SECONDS
            self._failures["redis"].begin(exc)

    def _confirm_written(self) -> None:
        while self.writer.finished:
            tick, deltas = self.writer.finished.popleft()
            for key in deltas:
                if key in self._meters:
                    self._meters[key].confirm_written(tick)

    def _drop_idle_meters(self) -> None:
        """Drop the meters of machines that are gone; one that comes back continues from its row."""
        for key in [key for key, meter in self._meters.items() if meter.is_idle and key not in self._targets]:
            del self._meters[key]
