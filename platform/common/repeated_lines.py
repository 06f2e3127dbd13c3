"""A log line that the same place writes again and again is counted, not repeated.

What a caller can cause (a client that leaves, a guest that violates its protocol) it can cause without end, and the log
keeps what fits: so many lines would push out everything else. Imports no Django.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

# The most lines of one place in a window: notes, warnings and errors, and those of them with a traceback.
NOTES, WARNINGS, TRACEBACKS = 600, 60, 5
WINDOW_SECONDS = 60.0
# Places; beyond them the oldest window ends early.
PLACES = 1000

Place = tuple[str, int, str, str, int]


@dataclass(slots=True)
class _Window:
    began: float
    place: str
    lines: int = 0
    left_out: int = 0


class RepeatedLines(logging.Filter):
    """A filter that passes the first lines of a place in a minute. How many were left out is added to the next line
    that passes, of whatever place. Safe in many threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: OrderedDict[Place, _Window] = OrderedDict()  # in the order of their beginnings
        self._counted: list[str] = []
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        place = _place_of(record)
        with self._lock:
            self._end_windows()
            window = self._windows.setdefault(place, _Window(self._clock(), f"{record.module}:{record.lineno}"))
            window.lines += 1
            if window.lines > _most(record):
                window.left_out += 1
                return False
            counted, self._counted = self._counted, []
        if counted:
            record.msg, record.args = f"{record.getMessage()} [{'; '.join(counted)}]", None
        return True

    def _end_windows(self) -> None:
        """End those whose time is over, and the oldest if there are too many."""
        before = self._clock() - WINDOW_SECONDS
        while self._windows:
            place, window = next(iter(self._windows.items()))
            if window.began > before and len(self._windows) < PLACES:
                return
            del self._windows[place]
            if window.left_out:
                self._counted.append(f"{window.left_out} more lines of {window.place}")


def _place_of(record: logging.LogRecord) -> Place:
    """Return the place of a line. Lines with a traceback are the same if the same statement raised the same kind of
    error.
    """
    error, at, line = "", "", 0
    if record.exc_info and record.exc_info[0] is not None:
        error = record.exc_info[0].__name__
        trace = record.exc_info[2]
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None:
            at, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
    return record.pathname, record.lineno, error, at, line


def _most(record: logging.LogRecord) -> int:
    if record.exc_info:
        return TRACEBACKS
    return WARNINGS if record.levelno >= logging.WARNING else NOTES
