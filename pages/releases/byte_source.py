"""Exact reads from a stream that gives as many bytes at a time as it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pages.releases.errors import ExportDamaged

PIECE = 256 * 1024


class Readable(Protocol):
    """A binary file that is read in order."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


class ByteSource:
    """Holds no more of the stream than one piece that the stream gave. What the stream raises passes through."""

    def __init__(self, stream: Readable | Iterable[bytes]) -> None:
        self._read: Callable[[int], bytes] = (
            _Pieces(iter(stream)).read if isinstance(stream, Iterable) and not hasattr(stream, "read") else stream.read
        )
        self._kept = memoryview(b"")

    def read_some(self, size: int) -> memoryview:
        """Between 1 and `size` bytes. Raises ExportDamaged at the end of the stream."""
        if not self._kept:
            self._kept = memoryview(self._read(PIECE))
        if not self._kept:
            raise ExportDamaged("The archive ended before it was complete.")
        taken, self._kept = self._kept[:size], self._kept[size:]
        return taken

    def read_exactly(self, size: int) -> bytes:
        """`size` bytes, which the caller has bounded. Raises ExportDamaged."""
        taken = bytearray()
        while len(taken) < size:
            taken += self.read_some(size - len(taken))
        return bytes(taken)

    def skip(self, size: int) -> None:
        """Leave out `size` bytes. Raises ExportDamaged."""
        while size:
            size -= len(self.read_some(size))


class _Pieces:
    """An iterator of bytes as a file; empty pieces are no end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, size: int, /) -> bytes:
        return next((piece for piece in self._pieces if piece), b"")
