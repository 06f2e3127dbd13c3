"""The terminal in which `ws` runs: raw while a terminal of a sandbox is open, as it was afterwards."""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

MOST = 1000  # columns and rows that the service takes
# What programs leave switched on when their connection is lost: alternate screen, mouse, bracketed paste, application
# keys, a hidden cursor, colours.
RESET = b"\x1b[?1047l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"


@contextmanager
def raw_mode(descriptor: int) -> Iterator[None]:
    """Each key is passed on as it comes; at the end the terminal is as it was, however the block ends."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSANOW)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def terminal_size(descriptor: int) -> tuple[int, int]:
    """Columns and rows, within what the service takes."""
    with suppress(OSError):
        size = os.get_terminal_size(descriptor)
        if size.columns and size.lines:
            return min(size.columns, MOST), min(size.lines, MOST)
    return 80, 24


class EscapeReader:
    """Finds `~.` after Enter, as ssh does: leave the terminal. `~~` after Enter is one `~`."""

    def __init__(self) -> None:
        self._after_enter = True
        self._has_tilde = False

    def passed_on(self, data: bytes) -> tuple[bytes, bool]:
        """The bytes that are input, and whether the user leaves."""
        found = bytearray()
        for byte in data:
            if self._has_tilde:
                self._has_tilde = False
                if byte == ord("."):
                    return bytes(found), True
                if byte != ord("~"):
                    found += b"~"
                found.append(byte)
                self._after_enter = byte in b"\r\n"
            elif self._after_enter and byte == ord("~"):
                self._has_tilde = True
            else:
                found.append(byte)
                self._after_enter = byte in b"\r\n"
        return bytes(found), False
