"""The output of one terminal that a process keeps, and the place of each socket in it. Pure but for the clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from workspaces.data_plane.sockets.modes import TerminalModes, terminal_state

# Are dropped at once. Their modes are followed then, which takes up to a microsecond for each byte.
DROP_BYTES = 8 * 1024
READ_AHEAD_BYTES = 32 * 1024  # bytes that are read before the slowest socket that counts has taken them
# Read and maybe in no client's connection yet: what is read ahead, one piece of the guest's, and what the server
# buffers. The guest keeps it, so that a killed process loses nothing.
IN_PROCESS = 192 * 1024
CHUNK = 16 * 1024  # bytes of one message to a client
UNACKNOWLEDGED = 128 * 1024
STUCK_SECONDS = 2.0


class OutputBuffer:
    """The last bytes of an output, by offset, and the modes before them. `size`: as many as the guest keeps.

    An output that does not begin at 0, or has a gap, has no modes until `know_modes` says them.
    """

    def __init__(self, start: int, size: int) -> None:
        self.start = self.end = start
        self._size = size
        self.modes = TerminalModes()  # at `modes_at`
        self.modes_at = start
        self.unknown = start > 0
        self._data = bytearray()

    def append(self, at: int, data: bytes) -> None:
        """Append output that begins at offset `at`; if that is beyond the end, the output between is lost."""
        if at != self.end:
            self._follow(self.end)
            self.modes.forget_position()
            self._data.clear()
            self.start = self.modes_at = at
            self.unknown = True
        self._data += data
        self.end = at + len(data)
        if len(self._data) > self._size + DROP_BYTES:
            start = self.end - self._size
            self._follow(start)
            del self._data[: start - self.start]
            self.start = start

    def know_modes(self, at: int, modes: TerminalModes) -> None:
        """Set the modes at an offset, which may not have been read yet."""
        self.unknown = False
        if at >= self.modes_at:
            self.modes, self.modes_at = modes.copy(), at

    def _follow(self, to: int) -> None:
        """Follow the modes to a later offset that has been read."""
        if to > self.modes_at:
            self.modes.feed(self.piece(self.modes_at, to - self.modes_at))
            self.modes_at = to

    def piece(self, at: int, limit: int) -> bytes:
        """Return at most that many bytes from an offset that is kept."""
        return bytes(self._data[at - self.start : at - self.start + limit])

    def state(self, lines: int) -> Callable[[], bytes]:
        """Return a function that makes the bytes that bring a fresh terminal to the present end, with at most that many
        lines.

        To be called in a thread: some programs' output takes a fraction of a second.
        """
        data = self.piece(self.modes_at, self.end - self.modes_at) if self.end > self.modes_at else b""
        return partial(terminal_state, self.modes.copy(), data, lines, whole=self.modes_at == 0)


class OutputPlace:
    """The place of one socket in the output. `ack`: at most UNACKNOWLEDGED bytes more than its client said that it has
    processed.
    """

    def __init__(self, offset: int, *, ack: bool, now: float) -> None:
        self.offset = offset
        self.unacknowledged = 0 if ack else None
        self.moved_at = now
        self.end_sent = False
        self.waits = False  # for a message that comes before the output

    def room(self) -> int:
        """Return bytes that may be sent now."""
        return CHUNK if self.unacknowledged is None else min(CHUNK, UNACKNOWLEDGED - self.unacknowledged)

    def acknowledge(self, count: int) -> None:
        """Count bytes as processed; more than was sent counts as all of it."""
        if self.unacknowledged is not None:
            self.unacknowledged = max(0, self.unacknowledged - count)

    def next_piece(self, output: OutputBuffer, now: float) -> bytes:
        """Return the next piece, which counts as sent; empty if there is none, or none may be sent."""
        data = output.piece(self.offset, self.room())
        if data:
            self.offset += len(data)
            self.moved_at = now
            if self.unacknowledged is not None:
                self.unacknowledged += len(data)
        return data

    def skip_gap(self, output: OutputBuffer) -> int:
        """Go to the oldest byte that is kept; return how many bytes are gone."""
        skipped = max(0, output.start - self.offset)
        self.offset += skipped
        return skipped

    def is_stuck(self, output: OutputBuffer, now: float) -> bool:
        """Return whether its client has taken nothing for some time, though there is something."""
        return self.offset < output.end and now - self.moved_at > STUCK_SECONDS


def may_read(output: OutputBuffer, places: list[OutputPlace], now: float) -> bool:
    """Return whether more output may be read: the slowest socket is waited for, but those that are stuck only if all
    are, and then the first of them.
    """
    moving = [place.offset for place in places if not place.is_stuck(output, now)]
    slowest = min(moving) if moving else max(place.offset for place in places)
    return output.end - slowest < READ_AHEAD_BYTES
