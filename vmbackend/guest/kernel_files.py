"""What is read by a command of the kit, as the guest's kernel may answer without an end or never: the names in a
directory, and virtual files. The file server would hang with all its transfers.
"""

from __future__ import annotations

from typing import Protocol

from vmbackend.errors import GuestCommandInvalid, GuestPathInvalid, GuestPathNotFound, GuestUnreachable

from .session import ExecResult

MAX_NAMES = 8 << 20  # bytes of a directory's names
MAX_VIRTUAL_FILE = 16 << 20


class PlatformCommand(Protocol):
    """Runs a short command of the platform's own."""

    async def __call__(self, command: list[str], max_output: int, *, working_dir: str | None = None) -> ExecResult: ...


async def directory_names(run: PlatformCommand, busybox: str, path: str) -> bytes:
    """The names in a directory in the format of `find -print0`.

    Raises GuestPathNotFound, GuestPathInvalid (too many names), GuestUnreachable (not listed in time).
    """
    command = [busybox, "find", ".", "-maxdepth", "1", "-mindepth", "1", "-print0"]
    try:
        result = await run(command, MAX_NAMES, working_dir=path)
    except GuestCommandInvalid as error:
        raise GuestPathNotFound(f"There is no {path!r} inside the machine any more.") from error
    if result.truncated:
        raise GuestPathInvalid(f"{path!r} contains more names than can be listed.")
    if result.timed_out:
        raise GuestUnreachable("The machine did not list the directory in time.")
    return result.stdout


async def read_virtual(run: PlatformCommand, busybox: str, path: str) -> bytes:
    """The content of a virtual file, some of which block for ever or never end. Raises GuestPathInvalid for those."""
    command = [busybox, "head", "-c", str(MAX_VIRTUAL_FILE + 1), path]
    result = await run(command, MAX_VIRTUAL_FILE)
    if result.timed_out:
        raise GuestPathInvalid(f"{path!r} blocks while it is read.")
    if result.truncated:
        raise GuestPathInvalid(f"{path!r} is a virtual file of more than {MAX_VIRTUAL_FILE >> 20} MiB.")
    if result.exit_code != 0:
        raise GuestPathInvalid(f"The machine does not allow {path!r} to be read.")
    return result.stdout
