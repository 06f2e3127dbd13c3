"""Received data of an SSH channel: in few pieces, however small the packets are, and never more than its window twice.

asyncssh keeps one list element for each packet and removes them from the front one by one: with packets of one byte of
a hostile guest a window of 256 KiB takes tens of seconds of one step, and a hundred times its size in memory.

It also gives the sender a whole window with each piece that it passes on, whatever waits behind that piece: a reader
that is slower than its sender gets several times what it reads into memory, without an end (271 MB while 60 were read).
Here what waits in the channel counts as not yet read.

Relies on internals of asyncssh 2.24: the lists `_recv_buf` of channels and of sessions, to which it appends; the method
`_deliver_data` of channels, which gets each piece, and their `_recv_window`, `_init_recv_window` and `_session`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import asyncssh
from asyncssh.constants import MSG_CHANNEL_WINDOW_ADJUST
from asyncssh.packet import UInt32

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

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return sum(len(data) for data, _ in self)


def deliver_data(channel: Any, data: bytes, kind: Any) -> None:
    """Pass a piece on to the channel's session, and let the guest send what there is room for."""
    free = channel._init_recv_window - channel._recv_window - channel._recv_buf.size
    if free > channel._init_recv_window / 2:
        channel.send_packet(MSG_CHANNEL_WINDOW_ADJUST, UInt32(free))
        channel._recv_window += free
    if channel._session is not None:
        channel._session.data_received(data, kind)


class GuestProcess(asyncssh.SSHClientProcess[bytes]):
    """A command in a guest."""

    def connection_made(self, chan: Any) -> None:
        """Note that the channel is open; no data was received yet."""
        super().connection_made(chan)
        chan._recv_buf = MergedBacklog(chan._recv_buf)
        chan._deliver_data = partial(deliver_data, chan)
        self._recv_buf = {kind: MergedPieces(pieces) for kind, pieces in self._recv_buf.items()}
