"""The sampler of a host: once a second, on a thread of its own, over the machines that are up and left alone.

One call to the hypervisor for all of them, then arithmetic (`meter.py`), then Redis; the database is another thread's
(`writer.py`), the guests a third's (`disks.py`). Nothing that fails here ends the thread: the next second tries again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import redis
from django.conf import settings
from django.db import DatabaseError, close_old_connections, connections

from vmbackend.driver import Driver
from vmbackend.errors import BackendError
from vmbackend.samples import Sample
from workspaces.host.metering.disks import DiskMeter
from workspaces.host.metering.meter import Meter, MeterTarget, UsageDelta
from workspaces.host.metering.roster import counted_samples, meter_targets
from workspaces.host.metering.sample_publisher import SamplePublisher, SampleUpdate
from workspaces.host.metering.writer import UsageWriter

logger = logging.getLogger(__name__)

MIDDLE, TOO_SOON = 0.5, 0.1  # of a second
PER_TRANSACTION = 250  # machines; others may write between two of them
REDIS_REST_SECONDS = 5.0  # after it failed
STOP_SECONDS = 5.0


class FailureLog:
    """Tells of a failure when it begins and when it ends, not every second."""

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
    """Seconds until the middle of a second: a round that is a little early or late still falls into its own second.

    One that took too long is followed by a later one, never by two at once.
    """
    wait = (MIDDLE - wall) % 1.0
    return wait if wait > TOO_SOON else wait + 1.0


class Sampler:
    """Of one host. `tick` is one round; `start` lets a thread make one every second."""

    def __init__(
        self,
        host_name: str,
        driver: Driver,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._host_name = host_name
        self._driver = driver
        self._monotonic = monotonic
        self._wall = wall
        self._meters: dict[str, Meter] = {}
        self._entries: dict[str, MeterTarget] = {}
        self._tick = 0
        self._flush_at = monotonic() + settings.ENV.metering_seconds
        self._no_redis_until = 0.0
        self._publisher = SamplePublisher()
        self._troubles = {what: FailureLog(f"sampler, {what}") for what in ("database", "hypervisor", "redis")}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
        self.writer = UsageWriter()
        self.disks = DiskMeter(driver)

    def start(self) -> None:
        self.writer.start()
        self.disks.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop measuring and write what was measured; harmless where it was never started."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
            self.disks.stop()
            self.flush(everything=True)
            self.writer.stop()
        self._publisher.close()

    def tick(self) -> None:
        """One round: who is up, one look at all of them, and what follows from it."""
        self._learn_what_was_written()
        self._refresh()
        now = self._monotonic()
        self._publish(self._measure(self._samples(), now), now)
        if now >= self._flush_at:
            if not self.writer.behind:
                self.flush()
            self._flush_at = now + settings.ENV.metering_seconds

    def flush(self, *, everything: bool = False) -> None:
        """Hand what was measured to the writer; `everything`: also the minute that goes on."""
        wall = self._wall()
        keys = list(self._meters)
        for first in range(0, len(keys), PER_TRANSACTION):
            self._tick = max(self._tick + 1, int(wall * 1_000_000))
            parts: dict[str, UsageDelta] = {}
            for key in keys[first : first + PER_TRANSACTION]:
                part = self._meters[key].usage_delta(self._tick, None if everything else wall)
                if part is not None:
                    parts[key] = part
            if parts:
                self.writer.put(self._tick, parts)
        self._forget_idle()

    def _work(self) -> None:
        while not self._ended.wait(until_next_round(self._wall())):
            try:
                close_old_connections()
                self.tick()
            except Exception:
                logger.exception("sampler")
        connections.close_all()

    def _refresh(self) -> None:
        """The machines to measure, and up to where each is counted. Without the database: those of before."""
        try:
            entries = meter_targets(self._host_name)
            new = [key for key in entries if key not in self._meters]
            for key, (last, tick) in (counted_samples(new) if new else {}).items():
                self._meters[key] = Meter(entries[key], last, tick)
            self._entries = entries
            self.disks.wanted = entries
            self._troubles["database"].end()
        except DatabaseError as exc:
            self._troubles["database"].begin(exc)

    def _samples(self) -> dict[str, Sample]:
        try:
            samples = self._driver.samples(self._entries) if self._entries else {}
            self._troubles["hypervisor"].end()
        except BackendError as exc:
            self._troubles["hypervisor"].begin(exc)
            return {}
        return samples

    def _measure(self, samples: dict[str, Sample], now: float) -> list[SampleUpdate]:
        pushed = []
        for key, sample in samples.items():
            entry, meter = self._entries[key], self._meters[key]
            point, ten = meter.add_sample(sample, entry, now)
            meter.disk = self.disks.known.get(key)
            second = point if entry.tracking else None
            pushed.append(SampleUpdate(key, entry.reset_count, meter.live_state(point), second, ten))
        for key, meter in self._meters.items():
            if meter.ten is not None and key not in samples and (ten := meter.end_ten()):
                pushed.append(SampleUpdate(key, meter.entry.reset_count, ten=ten))
        return pushed

    def _publish(self, pushed: list[SampleUpdate], now: float) -> None:
        if not pushed or now < self._no_redis_until:
            return
        try:
            self._publisher.push(pushed)
            self._troubles["redis"].end()
        except redis.RedisError as exc:
            self._no_redis_until = now + REDIS_REST_SECONDS
            self._troubles["redis"].begin(exc)

    def _learn_what_was_written(self) -> None:
        while self.writer.done:
            tick, parts = self.writer.done.popleft()
            for key in parts:
                if key in self._meters:
                    self._meters[key].written(tick)

    def _forget_idle(self) -> None:
        """Meters of machines that are gone; one that comes back is counted on from its row."""
        for key in [key for key, meter in self._meters.items() if meter.idle and key not in self._entries]:
            del self._meters[key]
