"""The ledger and metering as dictionaries: what they should hold after each step. Amounts are whole numbers of 1e-8."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from tests.workspaces.charging.integration import NOTHING, Counters, Prices, Raw, used_along, used_between

Place = tuple[str, str]  # namespace, service
Quota = tuple[int, int, str, list[float]]  # limit, overdraft, action, thresholds
STOP = "stop_workspaces"


@dataclass
class ExpectedBalance:
    """Of one namespace and service."""

    used: int = 0
    holds: dict[str, int] = field(default_factory=dict)
    limit: int | None = None
    overdraft: int = 0
    action: str = "block"
    thresholds: list[float] = field(default_factory=list)
    fired: float | None = None
    depleted: bool = False
    announced: list[str] = field(default_factory=list)

    @property
    def held(self) -> int:
        return sum(self.holds.values())

    @property
    def blocked(self) -> bool:
        return self.limit is not None and self.used > self.limit + self.overdraft

    def has_room(self, amount: int) -> bool:
        return self.limit is None or self.used + self.held + amount <= self.limit + self.overdraft

    def set(self, limit: int, overdraft: int, action: str, thresholds: list[float]) -> None:
        self.limit, self.overdraft, self.action, self.thresholds = limit, overdraft, action, thresholds

    def rearm(self) -> None:
        self.fired, self.depleted = None, False

    def charge(self, amount: int) -> None:
        self.used += amount
        if self.limit is None:
            return
        for threshold in sorted(set(self.thresholds)):
            passed = self.used > 0 and self.used * 100 >= self.limit * Fraction(str(threshold))
            if passed and (self.fired is None or threshold > self.fired):
                self.fired = threshold
                self.announced.append(str(float(threshold)))
        if self.blocked and not self.depleted:
            self.depleted = True
            self.announced.append("depleted")


@dataclass
class Record:
    """A metering record that is not charged yet."""

    machine: str
    place: Place
    tick: int
    used: Counters
    memory: int


@dataclass
class ExpectedLedger:
    """All balances. `keys`: what was charged or settled under a key of a place, by their numbers and names."""

    balances: dict[Place, ExpectedBalance] = field(default_factory=dict)
    keys: dict[tuple[int, str], int] = field(default_factory=dict)
    defaults: dict[str, Quota] = field(default_factory=dict)  # by service
    pending: list[Record] = field(default_factory=list)
    charged: dict[str, int] = field(default_factory=dict)  # by machine
    hours: dict[str, int] = field(default_factory=dict)  # by namespace: what was charged of records
    prices: Prices = field(default_factory=Prices)

    def balance(self, place: Place) -> ExpectedBalance:
        return self.balances.setdefault(place, ExpectedBalance())

    def apply_default(self, place: Place) -> None:
        """Before something is spent."""
        balance, default = self.balance(place), self.defaults.get(place[1])
        if balance.limit is None and default is not None:
            balance.set(*default)

    def charge(self, place: Place, amount: int) -> None:
        self.apply_default(place)
        self.balance(place).charge(amount)

    def is_suspended(self, namespace: str) -> bool:
        blocked = [
            (place[1], each.action) for place, each in self.balances.items() if place[0] == namespace and each.blocked
        ]
        return any(service == "sandbox" or action == STOP for service, action in blocked)

    def is_stopped(self, namespace: str) -> bool:
        return any(
            each.blocked and each.action == STOP for place, each in self.balances.items() if place[0] == namespace
        )

    def charge_batch(self, size: int) -> int:
        """What one transaction of the pass does. Returns how many records."""
        batch, self.pending = self.pending[:size], self.pending[size:]
        sums: dict[Place, int] = {}
        for record in batch:
            cost = self.prices.rounded(record.tick, record.used, record.memory)
            self.charged[record.machine] = self.charged.get(record.machine, 0) + cost
            self.hours[record.place[0]] = self.hours.get(record.place[0], 0) + cost
            sums[record.place] = sums.get(record.place, 0) + cost
        for place, amount in sums.items():
            if amount:
                self.charge(place, amount)
        return len(batch)


@dataclass
class Delta:
    """What a vmhost has taken to be written: the way from one sample to another. `after`: the tick of the former."""

    tick: int
    after: int
    begin: Raw | None
    path: list[Raw]
    memory: int


@dataclass
class ExpectedMachine:
    """One machine: what its row counts up to, and what the vmhost of now has seen since.

    `has_row`: the workspace is not deleted.
    """

    place: Place
    memory_mb: int
    has_row: bool = True
    row: tuple[int, Raw | None] = (0, None)
    written: set[int] = field(default_factory=set)
    # Of the vmhost of now.
    seen_at: int | None = None  # milliseconds
    begin: Raw | None = None
    after: int = 0
    path: list[Raw] = field(default_factory=list)
    memory: int = 0

    def see(self, raw: Raw, now: int) -> None:
        """`now` in milliseconds; more than five seconds between samples are a gap, in which no memory is counted."""
        if self.seen_at is None:
            self.after, self.begin = self.row  # a vmhost begins where the row ends
        elif now - self.seen_at <= 5000:
            self.memory += self.memory_mb * (now - self.seen_at)
        self.seen_at = now
        self.path.append(raw)

    def take(self, tick: int) -> Delta | None:
        if not self.path:
            return None
        delta = Delta(tick, self.after, self.begin, self.path, self.memory)
        self.begin, self.after, self.path, self.memory = self.path[-1], tick, [], 0
        return delta

    def forget(self) -> None:
        """The vmhost is gone, with what it had not written."""
        self.path, self.memory, self.seen_at = [], 0, None

    def write(self, name: str, delta: Delta) -> Record | None:
        """What the writing of a delta adds to the records."""
        used = used_along(delta.begin, delta.path)
        if self.has_row:
            if self.row[0] == delta.tick:
                return None
            if self._is_late(delta):
                used = NOTHING
            else:
                if self.row[0] != delta.after:
                    used = used_between(self.row[1], delta.path[-1])
                self.row = delta.tick, delta.path[-1]
        if delta.tick in self.written or not (delta.memory or any(used)):
            return None
        self.written.add(delta.tick)
        return Record(name, self.place, delta.tick, used, delta.memory)

    def _is_late(self, delta: Delta) -> bool:
        """A former vmhost's: the row counts a later sample already."""
        tick, raw = self.row
        if raw is None or tick == delta.after or delta.tick > tick:
            return False
        last = delta.path[-1]
        return last.process != raw.process or all(b <= a for a, b in zip(raw.counters, last.counters, strict=True))
