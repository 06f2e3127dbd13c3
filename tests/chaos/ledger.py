"""What the clients asked for and what was acknowledged.

A write that was not answered may have happened, may not have, or may still happen: a request can wait in the socket of
a stopped process. So a value is a set of what it may be, and only a quiet point ends the doubt.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# Words of the same length that no answer contains by itself; each account sends only its own.
WORDS = ("qaxzyqax", "wbvkjwbv")


class Possible:
    """What a value may be. None: it does not exist."""

    def __init__(self, value: str | None = None) -> None:
        self.values: set[str | None] = {value}
        self._late: set[str | None] = set()

    def begin(self, value: str | None) -> None:
        """A write is about to be sent."""
        self.values.add(value)

    def acknowledge(self, value: str | None) -> None:
        """The write was answered with success; one before it that was not answered may still overtake it."""
        self.values = {value} | self._late

    def withdraw(self, value: str | None, before: Iterable[str | None]) -> None:
        """The write was refused: it was not done."""
        if value not in self._late and value not in before:
            self.values.discard(value)

    def doubt(self, value: str | None) -> None:
        """The write was not answered, or by a failure."""
        self._late.add(value)

    def settle(self, value: str | None) -> None:
        """Read at a quiet point, where no request is under way."""
        self.values, self._late = {value}, set()


@dataclass(frozen=True)
class Mark:
    """What was written into the machine's memory, and the number that its kernel drew at boot."""

    token: str
    boot: str


@dataclass
class Tracked:
    """A workspace of one client thread, which alone changes it."""

    id: str
    word: str
    name: Possible
    files: dict[str, Possible] = field(default_factory=dict)
    metadata: Possible = field(default_factory=Possible)
    mark: Mark | None = None
    # Increased whenever the machine's memory may be lost, so that a mark written before is not expected after.
    generation: int = 0
    # A request that ends the machine was not answered and may still be carried out.
    may_end: bool = False
    # It was deleted, or its TTL removes it: it may be gone, or once `deleted` is acknowledged must be.
    may_vanish: bool = False
    deleted: bool = False
    totals: dict[str, int] = field(default_factory=dict)


@dataclass
class Site:
    """A page of one client thread, by its name, which is never changed. `slug`: empty while it is in doubt.

    `content`: the token that all files of its live release have.
    """

    name: str
    word: str
    workspace_id: str
    slug: str = ""
    content: Possible = field(default_factory=Possible)
    written: str = ""  # the newest version
    # Its creation was acknowledged; its deletion was asked for; its deletion was acknowledged.
    made: bool = False
    may_vanish: bool = False
    deleted: bool = False


@dataclass
class Creation:
    """A create request, sent any number of times with one key."""

    word: str
    key: str
    name: str
    ids: set[str] = field(default_factory=set)
    # No client waits for its answer any more: what it made belongs to no thread.
    abandoned: bool = False


@dataclass(frozen=True)
class Arrived:
    """An event that a receiver has taken: answered with 2xx. `namespace`: of its data; "" where it has none."""

    word: str
    id: str
    type: str
    namespace: str


@dataclass(frozen=True)
class Fact:
    """A change of a namespace that is announced by one event. A namespace is suspended and restored once."""

    word: str
    type: str
    namespace: str


class Ledger:
    """Shared by the clients, the faults and the checks."""

    def __init__(self, accounts: dict[str, str] | None = None) -> None:
        self.accounts = accounts or {}  # account id -> its word
        self.workspaces: dict[str, Tracked] = {}
        self.creations: dict[str, Creation] = {}
        self.sites: dict[str, Site] = {}  # by name
        self.gone: set[str] = set()
        self.names: dict[str, str] = {}  # every name that was asked for -> word of the account
        self.webhooks: dict[str, int] = {}  # word -> id of the account's webhook
        self.arrived: dict[str, Arrived] = {}
        self.acknowledged_events: set[str] = set()
        self.asked_facts: set[Fact] = set()
        self.acknowledged_facts: set[Fact] = set()
        self._lock = threading.Lock()

    def begin_creation(self, word: str, key: str, name: str) -> Creation:
        with self._lock:
            made = self.creations.setdefault(key, Creation(word, key, name))
            self.names[name] = word
            return made

    def add_workspace(self, creation: Creation, workspace_id: str) -> Tracked:
        """The creation was acknowledged. Answers the one tracked already where it was so before."""
        with self._lock:
            creation.ids.add(workspace_id)
            made = Tracked(workspace_id, creation.word, Possible(creation.name))
            return self.workspaces.setdefault(workspace_id, made)

    def begin_site(self, site: Site) -> None:
        with self._lock:
            self.sites[site.name] = site

    def begin_rename(self, tracked: Tracked, name: str) -> None:
        with self._lock:
            self.names[name] = tracked.word
            tracked.name.begin(name)

    def set_mark(self, tracked: Tracked, mark: Mark, generation: int) -> None:
        """Expect a mark, unless the memory may have been lost since `generation`."""
        with self._lock:
            if tracked.generation == generation and not tracked.may_end:
                tracked.mark = mark

    def expected_mark(self, tracked: Tracked, generation: int) -> Mark | None:
        """What must be in the memory of a machine that was asked since `generation`."""
        with self._lock:
            return tracked.mark if tracked.generation == generation else None

    def lose_memory(self, *workspace_ids: str) -> None:
        """From now on these machines' memory is not expected."""
        with self._lock:
            for key in workspace_ids:
                if tracked := self.workspaces.get(key):
                    tracked.mark = None
                    tracked.generation += 1

    def lose_all_memory(self) -> None:
        self.lose_memory(*self.workspaces)

    def add_arrived(self, event: Arrived) -> None:
        with self._lock:
            self.arrived[event.id] = event

    def events_of(self) -> dict[Fact, set[str]]:
        """Facts -> ids of the events of them that have arrived."""
        found: dict[Fact, set[str]] = {}
        with self._lock:
            for event in self.arrived.values():
                found.setdefault(Fact(event.word, event.type, event.namespace), set()).add(event.id)
        return found

    def remove(self, tracked: Tracked) -> None:
        """Its row is gone, as it may be."""
        with self._lock:
            self.gone.add(tracked.id)
            self.workspaces.pop(tracked.id, None)

    def settle(self) -> None:
        """At a quiet point: no request is under way any more."""
        for tracked in self.workspaces.values():
            tracked.may_end = False

    def foreign_words(self, word: str) -> tuple[str, ...]:
        return tuple(other for other in WORDS if other != word)


def decreased(before: dict[str, int], now: dict[str, Any]) -> list[str]:
    """Totals that are smaller than they were."""
    return [f"{name} went from {old} to {now.get(name)}" for name, old in before.items() if now.get(name, 0) < old]
