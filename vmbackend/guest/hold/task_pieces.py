"""Output of a task that was received and not read yet, however small the pieces are in which it came."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .frames import GuestGarbage

PIECE = 32 * 1024  # bytes that are read at once
MAX_GAPS = 1024  # among what was not read yet; the log of an honest guest has them where its disk was full


@dataclass(frozen=True, slots=True)
class TaskPiece:
    """Bytes of one output: 1 or 2. `offset`: of the first of them, in both outputs together.

    An offset beyond the end of the piece before says that what was between is gone.
    """

    offset: int
    output: int
    data: bytes

    @property
    def end(self) -> int:
        """Return the offset after them."""
        return self.offset + len(self.data)


class TaskPieces:
    """The pieces, in their order. Outputs may alternate with every byte: an object for each would take a hundred times
    the memory of its bytes.
    """

    def __init__(self, offset: int) -> None:
        self._data = bytearray()
        # Of each piece `bytes * 2 + output - 1`; small numbers share their objects.
        self._runs: deque[int] = deque()
        # Where offsets do not go on: the place in all runs that ever were, and how many bytes are gone before it.
        self._gaps: deque[tuple[int, int]] = deque()
        self._first_run = 0
        self._start = self._end = offset

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, offset: int, output: int, data: bytes) -> None:
        """Add bytes at or after the end. Raise GuestGarbage for more gaps than any log has."""
        size, lost = len(data), offset - self._end
        if lost:
            if len(self._gaps) >= MAX_GAPS:
                raise GuestGarbage
            self._gaps.append((self._first_run + len(self._runs), lost))
        elif self._runs and self._runs[-1] % 2 == output - 1 and self._runs[-1] // 2 + size <= PIECE:
            size += self._runs.pop() // 2
        self._runs.append(size * 2 + output - 1)
        self._data += data
        self._end = offset + len(data)

    def take(self) -> TaskPiece:
        """Remove the first piece and return it."""
        if self._gaps and self._gaps[0][0] == self._first_run:
            self._start += self._gaps.popleft()[1]
        size, output = divmod(self._runs.popleft(), 2)
        piece = TaskPiece(self._start, output + 1, bytes(self._data[:size]))
        del self._data[:size]
        self._first_run += 1
        self._start += size
        return piece
