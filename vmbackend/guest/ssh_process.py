"""Received data of an SSH channel in few pieces, however small the packets of a hostile guest are.

asyncssh keeps one list element for each packet and removes them from the front one by one: with packets of one byte a
window of 256 KiB takes tens of seconds of one step, and a hundred times its size in memory.

Relies on internals of asyncssh 2.24: the lists `_recv_buf` of channels and of sessions, to which it appends.
"""

from __future__ import annotations

from typing import Any

import asyncssh

# Pieces up to this size together are merged: copying this much takes less than a packet's decryption.
MERGED_BYTES = 4096


class MergedPieces(list[Any]):
    """The data that a session has not read: bytes, and exceptions among them."""

    def append(self, piece: Any) -> None:
        """Append; bytes are merged with those before them."""
        last = self[-1] if self else None
        if isinstance(piece, bytes) and isinstance(last, bytes) and len(last) + len(piece) <= MERGED_BYTES:
            self[-1] = last + piece
        else:
            super().append(piece)


class MergedBacklog(list[tuple[bytes, Any]]):
    """The data of a channel whose session does not read: bytes with their kind, standard output or error."""

    def append(self, item: tuple[bytes, Any]) -> None:
        """Append, merged with the last data of the same kind. The order of the two kinds does not matter."""
        data, kind = item
        for place in range(len(self) - 1, max(-1, len(self) - 3), -1):
            before, its_kind = self[place]
            if its_kind == kind:
                if len(before) + len(data) > MERGED_BYTES:
                    break
                self[place] = (before + data, kind)
                return
        super().append(item)


class GuestProcess(asyncssh.SSHClientProcess[bytes]):
    """A command in a guest."""

    def connection_made(self, chan: Any) -> None:
        """The channel is open; no data was received yet."""
        super().connection_made(chan)
        chan._recv_buf = MergedBacklog(chan._recv_buf)
        self._recv_buf = {kind: MergedPieces(pieces) for kind, pieces in self._recv_buf.items()}
