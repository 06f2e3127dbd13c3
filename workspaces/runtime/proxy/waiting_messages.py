"""Messages of WebSockets that wait in this process: for their rest, for the server or for the client.

One socket may have a few of the largest, and a machine has hundreds of sockets: all of them together have a limit.
"""

from __future__ import annotations

from collections.abc import Hashable
from weakref import WeakKeyDictionary

MAX_WAITING = 64 << 20  # bytes of a machine's sockets in this process


class TooMuchWaits(Exception):
    """The sockets of the machine have as much that waits as they may."""


class WaitingMessages:
    """The bytes of one socket that wait. `machine`: what all sockets of its machine have in common."""

    def __init__(self, machine: Hashable) -> None:
        self._machine = machine
        self._own = 0

    def add(self, size: int) -> None:
        """Count bytes more. Raise TooMuchWaits."""
        if _by_machine.get(self._machine, 0) + size > MAX_WAITING:
            raise TooMuchWaits
        self._count(size)

    def remove(self, size: int) -> None:
        """Count bytes less."""
        self._count(-size)

    def clear(self) -> None:
        """Count nothing more: the socket has ended."""
        self._count(-self._own)

    def _count(self, size: int) -> None:
        self._own += size
        _by_machine[self._machine] = _by_machine.get(self._machine, 0) + size


_by_machine: WeakKeyDictionary[Hashable, int] = WeakKeyDictionary()
