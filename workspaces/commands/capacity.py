"""Limit of the commands that a process runs at once, over all accounts and for each account.

A command that waits for a connection to its guest counts too: its output may take memory as long as it lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache

from django.conf import settings

from common.capacity import AccountCapacity, CapacityUsedUp
from common.errors import RateLimited

RETRY_SECONDS = 5


@contextmanager
def command_place(account_id: str) -> Iterator[None]:
    """Hold a place for one command of this account until the context ends. Raise RateLimited if none is free."""
    with ExitStack() as place:
        try:
            place.enter_context(command_capacity().reserve(account_id))
        except CapacityUsedUp as exc:
            problem = "Too many commands of this account run" if exc.own else "Too many commands run"
            raise RateLimited(f"{problem}; try again later.", headers={"Retry-After": str(RETRY_SECONDS)}) from exc
        yield


@lru_cache(maxsize=1)
def command_capacity() -> AccountCapacity:
    """Return the capacity of this process."""
    return AccountCapacity(settings.ENV.commands_max, settings.ENV.commands_per_account)
