"""Exact reads from a stream that gives any number of bytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pages.releases.errors import ExportDamaged

PIECE = 256 * 1024


class Readable(Protocol):
    """Binary file that is read in order."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        ...


class ByteSource:
    """Source of exact reads. It holds at most one piece of the stream. Errors of the stream pass through."""

    def __init__(self, stream: Readable | Iterable[bytes]) -> None:
        self._read: Callable[[int], bytes] = (
            _Pieces(iter(stream)).read if isinstance(stream, Iterable) and not hasattr(stream, "read") else stream.read
        )
        self._kept = memoryview(b"")

    def read_some(self, size: int) -> memoryview:
        """Return between 1 and `size` bytes. Raise ExportDamaged at the end of the stream."""
        if not self._kept:
            self._kept = memoryview(self._read(PIECE))
        if not self._kept:
            raise ExportDamaged("The archive ended before it was complete.")
        taken, self._kept = self._kept[:size], self._kept[size:]
        return taken

    def read_exactly(self, size: int) -> bytes:
        """Return `size` bytes, a number that the caller has bounded. Raise ExportDamaged."""
        taken = bytearray()
        while len(taken) < size:
            taken += self.read_some(size - len(taken))
        return bytes(taken)

    def skip(self, size: int) -> None:
        """Leave out `size` bytes. Raise ExportDamaged."""
        while size:
            size -= len(self.read_some(size))


class _Pieces:
    """Iterator of bytes as a file. Empty pieces are not the end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, size: int, /) -> bytes:
        return next((piece for piece in self._pieces if piece), b"")
