"""Programs of the kit that a change of files runs in the guest, and their ends."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from vmbackend.errors import DeadlineExceeded

from .session import ExecResult


class KitCommand(Protocol):
    """A function that runs a program of the kit (`helper`, `busybox`) in the guest. Raises GuestUnreachable,
    GuestCommandInvalid.
    """

    def __call__(
        self, program: str, arguments: Sequence[str], working_dir: str, stdin: bytes, max_output: int
    ) -> Awaitable[ExecResult]: ...


def require_end(result: ExecResult) -> ExecResult:
    """Return the result of a command that ended by itself. Raise DeadlineExceeded."""
    if result.timed_out:
        raise DeadlineExceeded("The machine did not finish in time.")
    return result
