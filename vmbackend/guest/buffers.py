"""Output of a command that is kept up to a limit."""

from __future__ import annotations


class EnoughOutput(Exception):
    """A command has written as many records as were wanted, and is to be ended."""


class BoundedBuffer:
    """The first `limit` bytes of a stream. With `stop_after` (a separator, a number) EnoughOutput ends the command."""

    def __init__(self, limit: int, stop_after: tuple[bytes, int] | None = None) -> None:
        self.data = bytearray()
        self.truncated = False
        self._limit = limit
        self._separator, self._left = stop_after or (b"", 0)

    def append(self, block: bytes) -> None:
        """Append; data beyond the limit is dropped and sets `truncated`. Raise EnoughOutput."""
        free = self._limit - len(self.data)
        self.data += block[:free]
        self.truncated = self.truncated or len(block) > free
        if self._separator:
            self._left -= block.count(self._separator)
            if self._left <= 0 or self.truncated:
                self.truncated = True
                raise EnoughOutput
