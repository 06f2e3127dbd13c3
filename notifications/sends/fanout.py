"""A send in the memory of the process that has its claim."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from django.utils import timezone

from notifications.content import Content
from notifications.models import Device, Send
from notifications.sends.queue import LIFE
from notifications.sends.results import INTERNAL, Result, Tally, failure

# Handed out at a time: what a killed process may lose of a send.
CHUNK = 100
# After the last turn: the longest attempt, and what it takes to hear of it.
GRACE_SECONDS = 20.0
# Between two writes of what has come of it, and of its lease if nothing came.
PROGRESS_SECONDS = 0.25
RENEW_SECONDS = 2.0


@dataclass(slots=True, eq=False)
class Fanout:
    """`pending` was handed out and waits for a thread. `in_flight`: attempts. `until`: monotonic seconds."""

    send: Send
    content: Content
    tally: Tally
    until: float
    pending: deque[Device] = field(default_factory=deque)
    in_flight: int = 0
    is_exhausted: bool = False
    written_at: float = 0.0
    is_changed: bool = False

    @classmethod
    def of(cls, send: Send, content: Content) -> Fanout:
        """Make the fanout of a send. Its time runs from when the send was accepted. Attempts that a former process
        began, and that have no outcome, stay begun.
        """
        age = max(0.0, (timezone.now() - send.created_at).total_seconds())
        until = time.monotonic() + LIFE.total_seconds() - age
        return cls(send, content, Tally.of(send.delivered, send.errors), until, written_at=time.monotonic())

    @property
    def is_over(self) -> bool:
        """Return whether no further device gets its turn."""
        return time.monotonic() >= self.until

    @property
    def wants_devices(self) -> bool:
        return not self.is_exhausted and not self.is_over and len(self.pending) < CHUNK // 2

    @property
    def has_ended(self) -> bool:
        """Return whether nothing is left to do, or what is in flight is not waited for any longer."""
        if time.monotonic() >= self.until + GRACE_SECONDS:
            return True
        return not self.in_flight and (self.is_over or (self.is_exhausted and not self.pending))

    @property
    def is_due(self) -> bool:
        """Return whether the row is to be written: something came, or its lease is to be renewed."""
        since = time.monotonic() - self.written_at
        return since >= PROGRESS_SECONDS and (self.is_changed or since >= RENEW_SECONDS)

    def record(self, result: Result) -> None:
        self.tally.add(result)
        self.is_changed = True

    def record_unreadable(self) -> None:
        """Record a device whose address cannot be read with the keys of this instance."""
        self.record(failure(INTERNAL, "The device's address cannot be read any more; register it again."))

    def mark_written(self) -> None:
        """Mark the row as written."""
        self.is_changed, self.written_at = False, time.monotonic()
