"""Which account gets the next place. Pure functions of what is in flight; without a database.

One rule: the account with the fewest in flight goes first, of equals the one that waits for longest, and each has at
most as many places as it leaves to others: half of them if it is alone, a quarter beside one that has its half. So
however many an account has waiting, and however long they take, the next account finds a place.

What an app knows of its work beyond that stays its own, on top of this: which receivers of webhooks answer
(`webhooks.sharing`), which deploys get on (`pages.deploys.places`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

Key = TypeVar("Key")


def most_of_account(of_others: int, places: int) -> int:
    """Return how many an account may have in flight while the others have so many; at least one while a place is
    free.
    """
    return max(0, (places - of_others + 1) // 2)


@dataclass(slots=True)
class Shares:
    """Counts of what each account has in flight: in a process, or counted over all of them. For one thread at a
    time.
    """

    places: int
    of_account: Counter[str] = field(default_factory=Counter)
    # When each account last got a place, as a growing number.
    last_place: dict[str, int] = field(default_factory=dict)
    turn: int = 0

    @property
    def total(self) -> int:
        return self.of_account.total()

    def begin(self, account: str) -> None:
        self.of_account[account] += 1
        self.turn += 1
        self.last_place[account] = self.turn

    def end(self, account: str) -> None:
        self.of_account[account] -= 1
        if self.of_account[account] <= 0:
            del self.of_account[account]

    def order(self, account: str) -> tuple[int, int]:
        """Return the account's place in the order; the account with the smallest goes first."""
        return self.of_account[account], self.last_place.get(account, 0)

    def has_place(self, account: str) -> bool:
        """Return whether one more of the account may begin."""
        own = self.of_account[account]
        return own < most_of_account(self.total - own, self.places)

    def next_account(self, waiting: Iterable[str]) -> str | None:
        """Return the next of the accounts with something that waits; None if no place is free for any of them."""
        account = min(waiting, key=lambda each: (*self.order(each), each), default=None)
        return account if account is not None and self.has_place(account) else None


def in_turn(rows: Iterable[tuple[Key, str]], in_flight: Mapping[str, int]) -> list[Key]:
    """Return keys of rows with their accounts, each account's in the given order, so that the accounts take turns and
    those with fewer in flight come first.
    """
    seen, turns = Counter(in_flight), []
    for key, account in rows:
        turns.append((seen[account], key))
        seen[account] += 1
    return [key for _, key in sorted(turns, key=lambda each: each[0])]
