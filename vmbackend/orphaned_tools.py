"""Confined tools that outlived the process for which they ran.

bwrap's process in the new pid namespace asks the kernel to end with its parent only after that parent has let it go
on. If the parent is killed in this moment, as with everything above it when vmhost is killed, it waits for ever.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

# How the command of a confined tool begins (`vmbackend.tool_confinement`).
CONFINED = ("bwrap", "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
_PROC = Path("/proc")
_WORDS = [word.encode() for word in CONFINED]


def kill_orphaned_tools() -> list[int]:
    """Kill those of this host, of whichever instance: none of them ever goes on. Processes of a container are left to
    it. Return their pids.
    """
    depth = len(_pids(_PROC / "self")) + 1
    found = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit() and _is_orphan(entry, depth)]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _is_orphan(process: Path, depth: int) -> bool:
    """Return whether the process is an orphan. `depth`: how many pids a process has whose namespace is directly below
    this process's own.
    """
    try:
        if not _is_confined(process):
            return False
        pids = _pids(process)
        # The first of its namespace; the one outside, whose parent is a process of the platform, is in ours.
        return len(pids) == depth and pids[-1] == "1" and not _is_confined(_PROC / _fields(process, "PPid")[0])
    except (OSError, ValueError):  # it has ended
        return False


def _is_confined(process: Path) -> bool:
    return (process / "cmdline").read_bytes().split(b"\0")[: len(_WORDS)] == _WORDS


def _pids(process: Path) -> list[str]:
    """Return its pid in each pid namespace that it is in, from this process's own on."""
    return _fields(process, "NSpid")


def _fields(process: Path, name: str) -> list[str]:
    lines = (process / "status").read_text(errors="replace").splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return line.split()[1:]
