"""Which account gets the next free thread. Pure functions.

The account with the fewest attempts in flight goes first, and none has more than half of the threads that the others
leave. So whatever an account's endpoints do, the next account finds threads, and one that is alone has half of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def next_account(waiting: Iterable[str], in_flight: Mapping[str, int], threads: int) -> str | None:
    """Of the accounts with something to send; None where no thread is free for any."""
    total = sum(in_flight.values())
    if total >= threads:
        return None
    account = min(waiting, key=lambda key: (in_flight.get(key, 0), key), default=None)
    if account is None:
        return None
    own = in_flight.get(account, 0)
    return account if own < most_of_account(total - own, threads) else None


def most_of_account(of_others: int, threads: int) -> int:
    """How many attempts an account may have in flight while the others have so many."""
    return max(1, (threads - of_others) // 2)
