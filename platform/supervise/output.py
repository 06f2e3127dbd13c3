"""Output of the commands: progress of long steps, prefixed log lines, summaries. Colours only on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

from vmbackend.management.progress import show_progress

_COLOURS = {
    "edge": 36,
    "api": 32,
    "streams": 35,
    "worker": 33,
    "hooks": 34,
    "pages": 95,
    "push": 96,
    "media": 92,
    "vmhost": 94,
    "beat": 90,
    "redis": 31,
    "postgres": 35,
    "platform": 1,
}
_WIDTH = 8
_lock = threading.Lock()


def print_line(prefix: str, text: str) -> None:
    """Print one line with an aligned prefix; lines of different threads never mix. Raise BrokenPipeError if nobody
    reads them any more: following logs ends with its reader.
    """
    mark = f"{prefix:<{_WIDTH}} |"
    if sys.stdout.isatty():
        mark = f"\033[{_COLOURS.get(prefix, 0)}m{mark}\033[0m"
    _write(f"{mark} {text}\n")


def print_message(text: str) -> None:
    """Print one line of the command's own. Without a reader it is dropped: `make up | head` starts everything."""
    with suppress(BrokenPipeError):
        print_line("platform", text)


def print_block(text: str) -> None:
    """Print several lines at once, with nothing in between. Without a reader they are dropped."""
    with suppress(BrokenPipeError):
        _write(text if text.endswith("\n") else text + "\n")


@contextmanager
def progress_of(title: str) -> Iterator[Callable[[int, str], None]]:
    """Show a step's percent and message, as the yielded function reports them; at its end that it is ready.

    A step that raises shows no end.
    """
    started = time.monotonic()
    console = Console() if sys.stdout.isatty() else None
    with show_progress(print_message, console) as begin:
        yield begin(title)
    seconds = time.monotonic() - started
    print_message(f"{title}: ready" + (f" ({seconds:.1f} s)" if seconds >= 1 else ""))


def _write(text: str) -> None:
    with _lock:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            # Also for what is still in the buffer, and for child processes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
