"""Mounts of this host: reading and unmounting them."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from vmbackend.errors import BackendUnavailable

log = logging.getLogger(__name__)

UNMOUNT_SECONDS = 60.0
_MOUNTINFO = Path("/proc/self/mountinfo")
# A space, a tab, a line feed and a backslash are octal there; all other bytes are as they are, a carriage return too.
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def mount_points() -> list[Path]:
    """Return the mount points of this process's mount namespace, in the order of mounting. Raise OSError."""
    rows = _MOUNTINFO.read_bytes().split(b"\n")
    return [Path(os.fsdecode(_ESCAPED.sub(_byte, row.split(b" ")[4]))) for row in rows if row]


def mounted_below(folder: Path) -> list[Path]:
    """Return the mount points at the folder and below it, as `mount_points`. Raise OSError."""
    return [point for point in mount_points() if point.is_relative_to(folder)]


def unmount(points: Sequence[Path]) -> None:
    """Unmount these, given in the order in which they were mounted, and no others. Mounts that cannot be unmounted
    within UNMOUNT_SECONDS stay, and are logged.

    If the host's mounts are shared, what is mounted below a bind is mounted below its source as well, and would be
    unmounted there, too: each is made private first. Raise BackendUnavailable if the host lacks the programs.
    """
    deadline = time.monotonic() + UNMOUNT_SECONDS
    for point in points:
        _run(("mount", "--make-private", "--", str(point)), deadline)
    left = list(points)
    while left:
        point = left.pop()
        _run(("umount", "--lazy", "--", str(point)), deadline)
        if point in left:  # it covered another one, which is reached only now
            _run(("mount", "--make-private", "--", str(point)), deadline)


def _run(command: Sequence[str], deadline: float) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(0.1, deadline - time.monotonic()),
            check=False,
        )
    except FileNotFoundError:
        raise BackendUnavailable(f"The host lacks the program {command[0]}.") from None
    except subprocess.TimeoutExpired:
        log.error("%s did not end", command)
        return
    if done.returncode:
        log.error("%s: code %d: %s", command, done.returncode, done.stderr.decode(errors="replace").strip())


def _byte(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])
