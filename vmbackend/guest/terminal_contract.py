"""The contract of terminals, for the driver's guests and the fake ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """How a terminal's command ended: its exit code, or the name of the signal that killed it (`SIGKILL`).

    A signal that SSH has no name for is the exit code 128+N. Both None: closed by `close` before the end was reported.
    """

    exit_code: int | None
    signal: str | None


class Terminal(ABC):
    """A command on a terminal of the guest. Raises GuestUnreachable wherever the channel fails, nothing else.

    Belongs to the event loop that opened it; from another loop: `GuestPool.acall(address, lambda _: terminal.read())`.
    It outlives its session's `close`. The opener must `close` it, also after it ended by itself. Output is data of a
    hostile guest: any bytes, escape sequences included.
    """

    @abstractmethod
    async def read(self) -> bytes:
        """The next output, at most 64 KiB; b"" at the end. Unread output blocks the command and uses limited memory."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Write input. Waits while the command does not read; dropped after the command's end."""

    @abstractmethod
    async def resize(self, cols: int, rows: int) -> None:
        """Set the size in characters, each clamped to 1..1000; the foreground group gets SIGWINCH."""

    @abstractmethod
    async def wait(self) -> TerminalExit:
        """Wait for the command's end, which is reported only after all output was read."""

    @abstractmethod
    async def close(self) -> None:
        """Hang up: the command's group is killed, a foreground job of a shell gets SIGHUP. Idempotent."""


def terminal_size(cols: int, rows: int) -> tuple[int, int]:
    """The size, clamped to what terminal programs support."""
    return min(max(cols, 1), 1000), min(max(rows, 1), 1000)
