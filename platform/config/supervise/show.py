"""What the commands show: progress of long steps, prefixed log lines, summaries. Colours only on a
terminal.
"""

from __future__ import annotations

import sys
import threading
import time

_COLOURS = {
    "edge": 36,
    "api": 32,
    "streams": 35,
    "worker": 33,
    "vmhost": 34,
    "beat": 90,
    "redis": 31,
    "platform": 1,
}
_WIDTH = 8
_lock = threading.Lock()


def line(prefix: str, text: str) -> None:
    """One line with an aligned prefix; lines of different threads never mix."""
    mark = f"{prefix:<{_WIDTH}} |"
    if sys.stdout.isatty():
        mark = f"\033[{_COLOURS.get(prefix, 0)}m{mark}\033[0m"
    _write(f"{mark} {text}\n")


def say(text: str) -> None:
    line("platform", text)


def block(text: str) -> None:
    """Several lines at once, with nothing in between."""
    _write(text if text.endswith("\n") else text + "\n")


class Progress:
    """Shows a step's percent: a bar on a terminal, else a line at each tenth. Called as `progress(percent,
    message)`.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._started = time.monotonic()
        self._shown: tuple[int, str] | None = None
        self._open = False

    def __call__(self, percent: int, message: str) -> None:
        percent = max(0, min(100, percent))
        if sys.stdout.isatty():
            bar = "#" * (percent // 5)
            _write(f"\r\033[K{self.title:<22} [{bar:<20}] {percent:3d}% {message[:60]}")
            self._open = True
        elif self._shown is None or percent // 10 != self._shown[0] // 10 or message != self._shown[1]:
            line("platform", f"{self.title}: {percent}% {message}")
        self._shown = (percent, message)

    def done(self, message: str = "ready") -> None:
        if self._open:
            _write("\r\033[K")
        seconds = time.monotonic() - self._started
        line("platform", f"{self.title}: {message}" + (f" ({seconds:.1f} s)" if seconds >= 1 else ""))


def _write(text: str) -> None:
    with _lock:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            # `make logs | head` is over; what runs in the background does not depend on us.
            sys.stdout = open("/dev/null", "w")  # noqa: SIM115, PTH123
            raise
