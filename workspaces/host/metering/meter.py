"""One machine's meter, in the memory of its host's vmhost: from samples to what is shown, counted and billed.

Three things are kept apart:

* *totals* and *billing* count every difference of the counters, also one over a gap: it was used. Totals stop with
  tracking and with a deletion of usage, billing does not.
* the *series* is made of consecutive samples alone: over a gap no point is made, so none shows what nobody saw.

What is not written yet lives here only; the samples that it was counted from are stored together with it, so the next
process counts on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from vmbackend.samples import GuestDisk, Sample
from workspaces.usage.amounts import KIB, Amounts, Point, amounts_between
from workspaces.usage.tiers import MINUTE

# Samples that are further apart are no series. More than one that is late, less than a start takes.
GAP_SECONDS = 5.0
TEN = 10
# That wait for a database which does not answer; of more the oldest go, from the series alone.
MAX_MINUTES = 60


class MeterTarget(NamedTuple):
    """A workspace to measure, as its rows are now."""

    workspace_id: str
    account_id: str
    namespace_id: str
    cpu_millis: int
    memory_mb: int
    tracking: bool
    reset_count: int


@dataclass(slots=True)
class UsageDelta:
    """What a tick writes of one machine. `period_ms`, `memory_mb_ms`: while it was seen. `after`: the tick before it,
    with whose counters the amounts begin; 0: none was.
    """

    entry: MeterTarget
    sample: Sample
    totals: Amounts
    billing: Amounts
    period_ms: int
    memory_mb_ms: int
    points: list[Point]
    after: int


@dataclass(slots=True)
class LiveState:
    """The newest look at a machine, as `live.py` keeps it for readers."""

    entry: MeterTarget
    sample: Sample
    point: Point | None  # None: nothing to compare with yet
    disk: GuestDisk | None
    unwritten: Amounts  # of the totals
    unwritten_points: Point  # the sum of the minutes that are not written, the one that goes on included
    tick: int  # of the last part that was written; what is unwritten comes after it


@dataclass(slots=True)
class Meter:
    """`last` is the sample up to which everything is counted; None: nothing ever was."""

    entry: MeterTarget
    last: Sample | None
    tick: int = 0
    seen_at: float | None = None  # monotonic; None: not by this process
    disk: GuestDisk | None = None
    totals: Amounts = field(default_factory=Amounts)
    billing: Amounts = field(default_factory=Amounts)
    period_ms: int = 0
    memory_mb_ms: int = 0
    ten: Point | None = None
    minutes: dict[int, Point] = field(default_factory=dict)
    # Handed to the writer and not known to be written: part by tick.
    in_flight: dict[int, UsageDelta] = field(default_factory=dict)
    touched: bool = False  # since the last part was taken
    handed: int = field(init=False)  # the tick of that part, written or not

    def __post_init__(self) -> None:
        self.handed = self.tick

    def add_sample(self, sample: Sample, entry: MeterTarget, now: float) -> tuple[Point | None, Point | None]:
        """Count one sample; `now` on the monotonic clock. Returns the second's point and the ten seconds that ended."""
        if entry.reset_count != self.entry.reset_count:
            self._clear()
        self.entry = entry
        used = amounts_between(self.last, sample)
        elapsed = None if self.seen_at is None else now - self.seen_at
        self.last, self.seen_at, self.touched = sample, now, True
        self.billing.add(used)
        if entry.tracking:
            self.totals.add(used)
        if elapsed is None or not 0 < elapsed <= GAP_SECONDS:
            return None, self.end_ten()
        milliseconds = round(elapsed * 1000)
        self.period_ms += milliseconds
        self.memory_mb_ms += entry.memory_mb * milliseconds
        point = _point(sample, used, milliseconds, entry.cpu_millis)
        return point, (self._into_buckets(point) if entry.tracking else self.end_ten())

    def end_ten(self) -> Point | None:
        """The ten seconds that were being gathered, as far as they came."""
        ended, self.ten = self.ten, None
        return ended

    def live_state(self, point: Point | None) -> LiveState:
        """What readers shall see now."""
        if self.last is None:
            raise ValueError("no sample was taken")
        unwritten, points = Amounts(), Point(0)
        unwritten.add(self.totals)
        for minute in self.minutes.values():
            points.add(minute)
        for part in self.in_flight.values():
            if part.entry.reset_count == self.entry.reset_count:
                unwritten.add(part.totals)
                for minute in part.points:
                    points.add(minute)
        return LiveState(self.entry, self.last, point, self.disk, unwritten, points, self.tick)

    def usage_delta(self, tick: int, now: float | None) -> UsageDelta | None:
        """Hand over what is to be written, with every minute but the one of `now` (seconds since the epoch)."""
        goes_on = None if now is None else now // MINUTE * MINUTE
        ended = [start for start in self.minutes if start != goes_on]
        if self.last is None or not (self.touched or ended):
            return None
        points = [self.minutes.pop(start) for start in sorted(ended)]
        part = UsageDelta(
            self.entry, self.last, self.totals, self.billing, self.period_ms, self.memory_mb_ms, points, self.handed
        )
        self.totals, self.billing = Amounts(), Amounts()
        self.period_ms = self.memory_mb_ms = 0
        self.touched, self.handed = False, tick
        self.in_flight[tick] = part
        return part

    def written(self, tick: int) -> None:
        """A part is in the database, or was given up."""
        if self.in_flight.pop(tick, None) is not None:
            self.tick = tick

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting this meter."""
        return not (self.touched or self.minutes or self.in_flight or self.ten)

    def _clear(self) -> None:
        """The owner deleted the usage. What was measured before is not shown any more; it is billed all the same."""
        self.totals = Amounts()
        self.ten = None
        self.minutes.clear()

    def _into_buckets(self, point: Point) -> Point | None:
        minute = point.start // MINUTE * MINUTE
        self.minutes.setdefault(minute, Point(minute)).add(point)
        if len(self.minutes) > MAX_MINUTES:
            del self.minutes[next(iter(self.minutes))]
        start, ended = point.start // TEN * TEN, None
        if self.ten is not None and self.ten.start != start:
            ended, self.ten = self.ten, None
        if self.ten is None:
            self.ten = Point(start)
        self.ten.add(point)
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
