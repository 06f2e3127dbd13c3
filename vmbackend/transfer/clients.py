"""The connections to a source: how many, for how long, and whose time their packets take."""

from __future__ import annotations

import time
from collections import Counter
from typing import Protocol

from vmbackend.guest.ssh_limits import CpuBudget, TotalBudget

from .offers import Offer

# Connections that have not logged in: of an address, so that one leaves places to others, and in all.
MAX_UNKNOWN_OF_ADDRESS = 8
MAX_UNKNOWN = 64
# Of an offer. A host whose connection broke comes again before this side knows, so the oldest one gives way.
MAX_OF_OFFER = 2
MAX_ADDRESSES = 256
# A client that has logged in asks for the folder at once; a transfer moves bytes before rsync's own limit.
BEGIN_SECONDS = 10.0
IDLE_SECONDS = 150.0


class Connected(Protocol):
    """One connection. `active_at`: when it last did something (time.monotonic()); `has_begun`: a transfer runs."""

    @property
    def active_at(self) -> float: ...

    @property
    def has_begun(self) -> bool: ...

    def abort(self) -> None: ...


class Clients:
    """Connections of one server. Belongs to its event loop."""

    def __init__(self, total: TotalBudget) -> None:
        self._total = total
        self._unknown: dict[Connected, str] = {}
        self._known: dict[Connected, Offer] = {}
        self._budgets: dict[str, CpuBudget] = {}

    def admit(self, client: Connected, address: str) -> CpuBudget | None:
        """Return the budget of one that has connected; None if it has no place."""
        if len(self._unknown) >= MAX_UNKNOWN or Counter(self._unknown.values())[address] >= MAX_UNKNOWN_OF_ADDRESS:
            return None
        self._unknown[client] = address
        # One that comes again at once has the debt that it left with.
        budget = self._budgets.pop(address, None) or CpuBudget(self._total)
        self._budgets[address] = budget
        if len(self._budgets) > MAX_ADDRESSES:
            del self._budgets[next(iter(self._budgets))]
        return budget

    def recognize(self, client: Connected, offer: Offer) -> None:
        """Note that one has logged in for an offer."""
        self._unknown.pop(client, None)
        others = [other for other, its in self._known.items() if its is offer]
        for other in others[: len(others) + 1 - MAX_OF_OFFER]:
            other.abort()
        self._known[client] = offer

    def forget(self, client: Connected) -> None:
        """Note that one is gone."""
        self._unknown.pop(client, None)
        self._known.pop(client, None)

    def end_offer(self, offer: Offer) -> None:
        """End the connections of an offer, and what runs for them."""
        for client in [client for client, its in self._known.items() if its is offer]:
            client.abort()

    def end_all(self) -> None:
        """End every connection."""
        for client in [*self._unknown, *self._known]:
            client.abort()

    def end_idle(self) -> None:
        """End connections that do nothing."""
        now = time.monotonic()
        for client in list(self._known):
            if now - client.active_at > (IDLE_SECONDS if client.has_begun else BEGIN_SECONDS):
                client.abort()
