"""Lines of a file that is read piece by piece."""

from __future__ import annotations

from common.errors import PayloadTooLarge

LAST = 1 << 62


class LineCollector:
    """A collector of lines `first` to `last` of a file, counted from 1, of at most `limit` bytes; counts all lines."""

    def __init__(self, first: int, last: int, limit: int) -> None:
        self.content = bytearray()
        self.size = 0
        self._first, self._last, self._limit = first, last, limit
        self._line = 1  # that of the next byte
        self._ends_whole = True

    @property
    def lines(self) -> int:
        """Return the number of lines so far; the last one counts also without a newline at its end."""
        return self._line - 1 if self._ends_whole else self._line

    @property
    def is_complete(self) -> bool:
        """Return whether nothing that follows is wanted."""
        return self._line > self._last

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the file. Raise PayloadTooLarge if the wanted lines have more bytes than the limit."""
        newlines = chunk.count(b"\n")
        start = _after_lines(chunk, self._first - self._line, newlines)
        end = _after_lines(chunk, self._last - self._line + 1, newlines)
        self.content += chunk[start:end]
        if len(self.content) > self._limit:
            raise PayloadTooLarge(f"More than {self._limit} bytes; request fewer lines, or download the whole file.")
        self.size += len(chunk)
        self._line += newlines
        self._ends_whole = chunk.endswith(b"\n") if chunk else self._ends_whole


def _after_lines(chunk: bytes, count: int, newlines: int) -> int:
    """Return the position in the chunk after so many newlines; its length if it has fewer."""
    if count > newlines:
        return len(chunk)
    position = 0
    for _ in range(count):
        position = chunk.index(b"\n", position) + 1
    return position


def numbered(text: str, first: int, limit: int) -> str:
    """Return each line with its number and a tab before it. Raise PayloadTooLarge above `limit` characters."""
    width = len(str(first + text.count("\n")))
    if len(text) + (text.count("\n") + 1) * (max(width, 6) + 1) > limit:
        raise PayloadTooLarge("The line numbers make the text too long; request fewer lines.")
    lines = text.split("\n")
    ends_whole = lines[-1] == ""
    shown = lines[:-1] if ends_whole else lines
    joined = "\n".join(f"{number:6d}\t{line}" for number, line in enumerate(shown, first))
    return joined + "\n" if ends_whole and shown else joined
