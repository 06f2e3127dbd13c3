"""Virtual files, which the guest's kernel may answer without an end or never: they are read by a command of the kit.

The file server would hang with all its transfers.
"""

from __future__ import annotations

from typing import Protocol

from vmbackend.errors import GuestPathInvalid

from .session import ExecResult

MAX_VIRTUAL_FILE = 16 << 20


class PlatformCommand(Protocol):
    """A function that runs a short command of the platform's own."""

    async def __call__(self, command: list[str], max_output: int, *, working_dir: str | None = None) -> ExecResult: ...


async def read_virtual(run: PlatformCommand, busybox: str, path: str) -> bytes:
    """Return the content of a virtual file, some of which block for ever or never end. Raise GuestPathInvalid for
    those.
    """
    command = [busybox, "head", "-c", str(MAX_VIRTUAL_FILE + 1), path]
    result = await run(command, MAX_VIRTUAL_FILE)
    if result.timed_out:
        raise GuestPathInvalid(f"{path!r} blocks while it is read.")
    if result.truncated:
        raise GuestPathInvalid(f"{path!r} is a virtual file of more than {MAX_VIRTUAL_FILE >> 20} MiB.")
    if result.exit_code != 0:
        raise GuestPathInvalid(f"The machine does not allow {path!r} to be read.")
    return result.stdout
