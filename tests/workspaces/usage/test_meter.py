"""The meter over random histories: what it bills is exactly what could be seen, and the rest is never more."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from vmbackend.samples import Sample
from workspaces.host.metering.meter import GAP_SECONDS, Meter, MeterTarget, UsageDelta

STEPS = st.one_of(
    st.tuples(st.just("use"), st.integers(0, 10**12)),
    st.tuples(st.just("look"), st.integers(0, 3)),
    st.tuples(st.just("look"), st.integers(0, 100)),
    st.tuples(st.just("new process"), st.booleans()),
    st.tuples(st.just("part"), st.booleans()),
    st.tuples(st.just("clock"), st.integers(-(10**6), 10**6)),
    st.tuples(st.just("track"), st.booleans()),
    st.tuples(st.just("clear"), st.none()),
    st.tuples(st.just("next vmhost"), st.none()),
)


@dataclass
class History:
    """A machine and the meters that saw it. `seen` and `tracked` are what the counters grew by between looks."""

    wall: float = 1_800_000_000.0
    monotonic: float = 0.0
    run: int = 1
    counter: int = 0
    counted: int = 0  # of this process
    seen: int = 0
    tracked: int = 0
    unwritten: tuple[int, int, int] = (0, 0, 0)  # seen, tracked and the counter, at the last part
    target: MeterTarget = field(default_factory=lambda: MeterTarget("ws", "acc", "ns", 1000, 128, True, 0))
    parts: list[UsageDelta] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.meter = Meter(self.target, None)
        self.written: Sample | None = None

    def look(self, seconds: int) -> None:
        self.wall += seconds
        self.monotonic += seconds
        grown, self.counted = self.counter - self.counted, self.counter
        self.seen += grown
        self.tracked += grown if self.target.tracking else 0
        sample = Sample(self.wall, f"{self.run}", cpu_time_ns=self.counter)
        point, _ = self.meter.add_sample(sample, self.target, self.monotonic)
        assert point is None or 0 < seconds <= GAP_SECONDS
        assert self.meter.live_state(point).unwritten.cpu_time_ns >= 0

    def take_delta(self, everything: bool) -> None:
        tick = len(self.parts)
        part = self.meter.take_delta(tick, None if everything else self.wall)
        if part is not None:
            self.parts.append(part)
            self.written = part.sample
            self.meter.confirm_written(tick)

    def next_vmhost(self) -> None:
        """One that died wrote nothing more: its successor begins where the last part ended."""
        self.seen = sum(part.billing.cpu_time_ns for part in self.parts)
        self.tracked = sum(self._totals())
        known = self.written
        self.counted = known.cpu_time_ns if known is not None and known.generation == f"{self.run}" else 0
        self.meter = Meter(self.target, known)

    def clear(self) -> None:
        self.target = self.target._replace(reset_count=self.target.reset_count + 1)
        self.tracked = 0

    def _totals(self) -> list[int]:
        """Of the parts that the row would add up."""
        return [part.totals.cpu_time_ns for part in self.parts if part.target.reset_count == self.target.reset_count]


@given(st.lists(STEPS, max_size=60))
def test_any_history_is_billed_exactly_and_nothing_twice(steps: list[tuple]) -> None:
    history = History()
    for what, value in steps:
        match what:
            case "use":
                history.counter += value
            case "look":
                history.look(value)
            case "new process":
                history.run, history.counted = history.run + 1, 0
                history.counter = 0 if value else history.counter * 2
            case "part":
                history.take_delta(value)
            case "clock":
                history.wall += value
            case "track":
                history.target = history.target._replace(tracking=value)
            case "clear":
                history.clear()
            case "next vmhost":
                history.next_vmhost()
    history.look(1)
    history.take_delta(True)
    assert sum(part.billing.cpu_time_ns for part in history.parts) == history.seen
    assert sum(history._totals()) == history.tracked
    shown = [
        point
        for part in history.parts
        if part.target.reset_count == history.target.reset_count
        for point in part.points
    ]
    assert sum(point.cpu_time_ns for point in shown) <= history.tracked
    assert all(point.start % 60 == 0 and min(point.sums) >= 0 for point in shown)
