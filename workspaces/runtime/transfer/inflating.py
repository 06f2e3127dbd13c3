"""Inflating a body that is gzip, in pieces. What a stranger has packed may be a million times as large."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from workspaces.runtime.transfer.errors import ArchiveInvalid

PIECE = 256 * 1024
RATIO = 1000
# Below this many bytes the ratio does not count: a file of zeros is no attack.
RATIO_FROM = 64 << 20
_GZIP = 31  # zlib's window with a header of gzip


class Inflater:
    """One body. Members of gzip may follow one another; anything else behind is refused."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP)
        self._taken = self._given = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes of the body become, at most PIECE at once. Raise ArchiveInvalid."""
        self._taken += len(data)
        while data or not self._stream.eof:
            if self._stream.eof:
                self._stream = zlib.decompressobj(_GZIP)
            try:
                piece = self._stream.decompress(data, PIECE)
            except zlib.error as exc:
                raise ArchiveInvalid("The body is not gzip, or has something else behind it.") from exc
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            self._count(len(piece))
            if piece:
                yield piece
            elif not data:
                return

    def finish(self) -> None:
        """Raise ArchiveInvalid if the body has ended too early."""
        if not self._stream.eof:
            raise ArchiveInvalid("The body ends in the middle of the archive.")

    def _count(self, size: int) -> None:
        self._given += size
        if self._given > RATIO_FROM and self._given > RATIO * self._taken:
            raise ArchiveInvalid(f"The archive becomes more than {RATIO} times as large.")
