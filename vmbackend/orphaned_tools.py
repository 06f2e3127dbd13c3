"""Confined tools that outlived the process for which they ran.

bwrap's process in the new pid namespace asks the kernel to end with its parent only after that parent has let it go
on. Where the parent is killed in this moment, as with everything above it when vmhost is killed, it waits for ever.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_DIES_WITH_PARENT = b"--die-with-parent"


def kill_orphaned_tools() -> list[int]:
    """Kill those of this host, of whichever instance: none of them ever goes on. Returns their pids."""
    own = (_PROC / "self/ns/pid").readlink()
    found = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit() and _is_orphan(entry, own)]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _is_orphan(process: Path, own_namespace: Path) -> bool:
    try:
        words = _words(process)
        return (
            words[0] == b"bwrap"
            and _DIES_WITH_PARENT in words
            # The first of a namespace; the one outside, whose parent is a process of the platform, has none.
            and (process / "ns/pid").readlink() != own_namespace
            and _words(_PROC / _parent(process))[0] != b"bwrap"
        )
    except (OSError, ValueError):  # it has ended
        return False


def _words(process: Path) -> list[bytes]:
    return (process / "cmdline").read_bytes().split(b"\0")


def _parent(process: Path) -> str:
    lines = (process / "status").read_text(errors="replace").splitlines()
    (line,) = [line for line in lines if line.startswith("PPid:")]
    return line.split()[1]
