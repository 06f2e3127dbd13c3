"""Which subscriptions get the free threads: no receiver and no account delays another. Pure functions.

Threads go one by one to the account whose turn it is (`common.work.shares`), and within it to its subscription with the
fewest attempts in flight. So it does not matter how many deliveries of an account are due, or how long its receivers
take. The attempts of a subscription beyond the first fit in half of its account's share: the other half is there
for the subscriptions of the account that have none. A receiver that has not proven that it answers gets one attempt at
a time.

An attempt that takes long leaves its thread: as many threads again are there for these. The more there are, the fewer
are begun, at once and of one account, so that however many receivers hang, and one after another, others find a thread.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.work.shares import Shares

MOST_OF_SUBSCRIPTION = 4
# One attempt shows whether a receiver answers that was never sent to, or did not take the last one.
MOST_OF_UNPROVEN = 1
# An attempt in flight for longer takes none of the threads that others may begin with.
LONG_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class DueSubscription:
    """A subscription with a delivery that is due. `is_proven`: its last attempt delivered.

    `due_at` is only compared.
    """

    id: str
    account_id: str
    is_proven: bool
    due_at: Any


@dataclass(slots=True)
class InFlight:
    """The attempts that this process is making: of `threads` at most, beside those that take long.

    `now`, `begun`: monotonic seconds; the subscription of each attempt, and when that began.
    """

    threads: int
    now: float = 0.0
    begun: list[tuple[str, float]] = field(default_factory=list)
    of_subscription: Counter[str] = field(default_factory=Counter)
    accounts: Shares = field(init=False)
    unproven: int = 0

    def __post_init__(self) -> None:
        self.accounts = Shares(self.threads)

    @property
    def total(self) -> int:
        return self.accounts.total

    @property
    def long(self) -> int:
        """Return how many take long."""
        return sum(self._is_long(begun) for _, begun in self.begun)

    @property
    def free(self) -> int:
        """Return how many may begin now: half of what those that take long leave of twice the threads, without those
        that have begun.
        """
        return max(0, self.threads - self.long // 2 - (self.total - self.long))

    @property
    def slow_subscriptions(self) -> set[str]:
        """Return the subscriptions with an attempt that takes long."""
        return {key for key, begun in self.begun if self._is_long(begun)}

    @property
    def seconds_to_wait(self) -> float | None:
        """Return the seconds until the next attempt in flight takes long; None if none will."""
        left = [begun + LONG_SECONDS - self.now for _, begun in self.begun if not self._is_long(begun)]
        return min(left, default=None)

    def _is_long(self, begun: float) -> bool:
        return self.now - begun >= LONG_SECONDS

    @property
    def most_of_account(self) -> int:
        """Return a quarter of the threads that those that take long would leave."""
        return max(1, (self.threads - self.long) // 4)

    @property
    def most_beyond_one(self) -> int:
        """Return how many an account may have in flight when a subscription of it begins another one beside its own."""
        return max(1, self.most_of_account // 2)

    @property
    def most_unproven(self) -> int:
        """Return half of the threads: the others are there for receivers that answer, however many do not."""
        return max(1, self.threads // 2)

    def attempt_began(self, subscription_id: str, account_id: str, *, is_proven: bool) -> None:
        """Record that an attempt begins at `now`."""
        self.begun.append((subscription_id, self.now))
        self.of_subscription[subscription_id] += 1
        self.accounts.begin(account_id)
        self.unproven += not is_proven

    def attempt_ended(self, subscription_id: str, account_id: str, *, is_proven: bool, began: float = 0.0) -> None:
        """Record the end of an attempt. `began`: what `now` was at its beginning."""
        self.begun.remove((subscription_id, began))
        self.of_subscription[subscription_id] -= 1
        if self.of_subscription[subscription_id] <= 0:
            del self.of_subscription[subscription_id]
        self.accounts.end(account_id)
        self.unproven -= not is_proven


def most_in_flight(*, is_proven: bool) -> int:
    """Return how many attempts of one subscription may be in flight."""
    return MOST_OF_SUBSCRIPTION if is_proven else MOST_OF_UNPROVEN


def threads_share(due: Iterable[DueSubscription], in_flight: InFlight) -> Mapping[str, int]:
    """Return how many attempts each subscription may begin now, by its id; those that may begin none are left out."""
    free, most_of_account, most_beyond_one = in_flight.free, in_flight.most_of_account, in_flight.most_beyond_one
    unproven_left = in_flight.most_unproven - in_flight.unproven
    waiting = _waiting_by_account(due, in_flight)
    accounts = [(*in_flight.accounts.order(key), key) for key in waiting]
    heapq.heapify(accounts)
    shares: Counter[str] = Counter()
    while free > 0 and accounts:
        busy, turn, account = heapq.heappop(accounts)
        if busy >= most_of_account or not waiting[account]:
            continue
        may_add = busy < most_beyond_one
        found = _next_of_account(waiting[account], may_add=may_add, may_prove=unproven_left > 0)
        if found is not None:
            shares[found.id] += 1
            free -= 1
            unproven_left -= not found.is_proven
            heapq.heappush(accounts, (busy + 1, turn, account))
    return dict(shares)


_Waiting = list[tuple[int, Any, str, DueSubscription]]


def _waiting_by_account(due: Iterable[DueSubscription], in_flight: InFlight) -> dict[str, _Waiting]:
    waiting: dict[str, _Waiting] = defaultdict(list)
    for each in due:
        heapq.heappush(waiting[each.account_id], (in_flight.of_subscription[each.id], each.due_at, each.id, each))
    return waiting


def _next_of_account(waiting: _Waiting, *, may_add: bool, may_prove: bool) -> DueSubscription | None:
    """Return the account's next subscription; those that may not begin a further attempt leave the heap."""
    while waiting:
        busy, due_at, key, found = heapq.heappop(waiting)
        is_full = busy >= most_in_flight(is_proven=found.is_proven) or (busy and not may_add)
        if is_full or not (found.is_proven or may_prove):
            continue
        heapq.heappush(waiting, (busy + 1, due_at, key, found))
        return found
    return None
