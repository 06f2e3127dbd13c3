"""The meter of one machine, in vmhost's memory: from samples to the series, the totals and the billed usage.

* *Totals* and *billing* count every difference of the counters, also one over a gap. Disabled tracking and a deletion
  of usage affect totals, but not billing.
* The *series* is made of consecutive samples alone: a gap has no points.

Unwritten usage exists here only. It is stored together with the counters up to which it counts, so the next process
continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from vmbackend.samples import GuestDisk, Sample
from workspaces.usage.amounts import KIB, Amounts, Point, amounts_between
from workspaces.usage.tiers import MINUTE

# Samples that are further apart have a gap between them. This is more than a late sample, and less than a start takes.
GAP_SECONDS = 5.0
TEN = 10
# Minutes held while the database does not answer. Of more minutes the oldest are dropped, from the series only.
MAX_MINUTES = 60


class MeterTarget(NamedTuple):
    """A workspace to measure, as its rows are now. `operation`: the state of a live operation on it; empty: none."""

    workspace_id: str
    account_id: str
    namespace_id: str
    cpu_millis: int
    memory_mb: int
    tracking: bool
    reset_count: int
    operation: str = ""
    name: str = ""
    namespace_slug: str = ""


@dataclass(slots=True)
class UsageDelta:
    """Usage that a tick adds for one machine. `period_ms` and `memory_mb_ms` cover the time it was observed. `after` is
    the tick at whose counters the amounts begin; 0 means that there was none.
    """

    target: MeterTarget
    sample: Sample
    totals: Amounts
    billing: Amounts
    period_ms: int
    memory_mb_ms: int
    points: list[Point]
    after: int


@dataclass(slots=True)
class LiveState:
    """The newest sample of a machine with its unwritten usage, for readers (`usage.latest_samples`)."""

    target: MeterTarget
    sample: Sample
    point: Point | None  # None: the first sample
    disk: GuestDisk | None
    unwritten: Amounts  # of the totals
    unwritten_points: Point  # the sum of the minutes that are not written, including the current one
    tick: int  # the tick of the last written delta; unwritten usage follows it


@dataclass(slots=True)
class Meter:
    """Meter of one machine. `last` is the sample up to which usage is counted; None: nothing was counted yet."""

    target: MeterTarget
    last: Sample | None
    tick: int = 0
    sampled_at: float | None = None  # monotonic; None: not by this process
    disk: GuestDisk | None = None
    totals: Amounts = field(default_factory=Amounts)
    billing: Amounts = field(default_factory=Amounts)
    period_ms: int = 0
    memory_mb_ms: int = 0
    ten_seconds: Point | None = None
    minutes: dict[int, Point] = field(default_factory=dict)
    # Submitted to the writer and not known to be written, by tick.
    in_flight: dict[int, UsageDelta] = field(default_factory=dict)
    changed: bool = False  # since the last delta was taken
    submitted_once: bool = False  # by this process
    submitted: int = field(init=False)  # the tick of that delta, written or not

    def __post_init__(self) -> None:
        self.submitted = self.tick

    def add_sample(self, sample: Sample, target: MeterTarget, now: float) -> tuple[Point | None, Point | None]:
        """Count one sample; `now` on the monotonic clock. Return the second's point and the ten seconds that ended."""
        if target.reset_count != self.target.reset_count:
            self._clear()
        self.target = target
        used = amounts_between(self.last, sample)
        elapsed = None if self.sampled_at is None else now - self.sampled_at
        self.last, self.sampled_at, self.changed = sample, now, True
        self.billing.add(used)
        if target.tracking:
            self.totals.add(used)
        if elapsed is None or not 0 < elapsed <= GAP_SECONDS:
            return None, self.end_ten_seconds()
        milliseconds = round(elapsed * 1000)
        self.period_ms += milliseconds
        self.memory_mb_ms += target.memory_mb * milliseconds
        point = _point(sample, used, milliseconds, target.cpu_millis)
        return point, (self._into_buckets(point) if target.tracking else self.end_ten_seconds())

    def was_sampled_after(self, moment: float) -> bool:
        """Return whether a sample was counted after `moment` (monotonic): the counters of an earlier one may be
        smaller.
        """
        return self.sampled_at is not None and self.sampled_at > moment

    def end_ten_seconds(self) -> Point | None:
        """End the current bucket of ten seconds and return it, or None if there is none."""
        ended, self.ten_seconds = self.ten_seconds, None
        return ended

    def live_state(self, point: Point | None) -> LiveState:
        """Return the state that readers see now. Raise ValueError before the first sample."""
        if self.last is None:
            raise ValueError("no sample was taken")
        unwritten, points = Amounts(), Point(0)
        unwritten.add(self.totals)
        for minute in self.minutes.values():
            points.add(minute)
        for delta in self.in_flight.values():
            if delta.target.reset_count == self.target.reset_count:
                unwritten.add(delta.totals)
                for minute in delta.points:
                    points.add(minute)
        return LiveState(self.target, self.last, point, self.disk, unwritten, points, self.tick)

    def take_delta(self, tick: int, now: float | None) -> UsageDelta | None:
        """Take the unwritten usage, with every minute but that of `now` (seconds since the epoch). Return None if there
        is none.
        """
        current = None if now is None else now // MINUTE * MINUTE
        ended = [start for start in self.minutes if start != current]
        if self.last is None or not (self.changed or ended):
            return None
        points = [self.minutes.pop(start) for start in sorted(ended)]
        delta = UsageDelta(
            self.target, self.last, self.totals, self.billing, self.period_ms, self.memory_mb_ms, points, self.submitted
        )
        self.totals, self.billing = Amounts(), Amounts()
        self.period_ms = self.memory_mb_ms = 0
        self.changed, self.submitted, self.submitted_once = False, tick, True
        self.in_flight[tick] = delta
        return delta

    def confirm_written(self, tick: int) -> None:
        """Note that the delta of a tick was written or given up."""
        if self.in_flight.pop(tick, None) is not None:
            self.tick = tick

    @property
    def has_unsubmitted(self) -> bool:
        """Return whether anything was metered since the last delta was taken."""
        return self.changed or bool(self.minutes)

    @property
    def is_idle(self) -> bool:
        """Return whether nothing would be lost by dropping this meter."""
        return not (self.has_unsubmitted or self.in_flight or self.ten_seconds)

    def _clear(self) -> None:
        """Drop shown usage, because the owner deleted it. Earlier measurements are billed, but no longer shown."""
        self.totals = Amounts()
        self.ten_seconds = None
        self.minutes.clear()

    def _into_buckets(self, point: Point) -> Point | None:
        minute = point.start // MINUTE * MINUTE
        self.minutes.setdefault(minute, Point(minute)).add(point)
        if len(self.minutes) > MAX_MINUTES:
            del self.minutes[next(iter(self.minutes))]
        start, ended = point.start // TEN * TEN, None
        if self.ten_seconds is not None and self.ten_seconds.start != start:
            ended, self.ten_seconds = self.ten_seconds, None
        if self.ten_seconds is None:
            self.ten_seconds = Point(start)
        self.ten_seconds.add(point)
        return ended


def _point(sample: Sample, used: Amounts, milliseconds: int, cpu_millis: int) -> Point:
    return Point(
        int(sample.at),
        milliseconds,
        used.cpu_time_ns,
        milliseconds * cpu_millis * 1000,
        (sample.memory_used_bytes or 0) // KIB * milliseconds,
        used.disk_read_bytes,
        used.disk_write_bytes,
        used.net_rx_bytes,
        used.net_tx_bytes,
    )
