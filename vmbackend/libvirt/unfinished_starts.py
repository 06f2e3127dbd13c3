"""Starts that the former process of an embedded libvirt noted, but not yet QEMU's process id.

libvirt writes a machine's state before it starts QEMU, and again with the process id. A later libvirt waits 30 seconds
for the monitor of a machine without a process id, and takes the machine for active for ever: it can neither be started
nor ended. So these notes are removed before libvirt is opened, with a QEMU that was started all the same: its CPUs
never ran, and memory that it was loading is still in its file.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

log = logging.getLogger(__name__)

_KILL_SECONDS = 5.0


def remove_unfinished_starts(root: Path, paths: Collection[Path]) -> None:
    """Remove them below an embedded root that this process owns and has not opened yet. Idempotent.

    `paths`: the root as machines may have it in their command lines.
    """
    for status in sorted((root / "run" / "qemu").glob("*.xml")):
        if not _has_no_pid(status):
            continue
        if not _end_processes(paths, status.stem):
            log.error("the unfinished start of %s stays: its process does not end", status.stem)
            continue
        log.warning("the unfinished start of %s is removed", status.stem)
        status.with_suffix(".pid").unlink(missing_ok=True)
        status.unlink(missing_ok=True)  # last: what a death leaves is found again


def _has_no_pid(status: Path) -> bool:
    try:
        state = ET.parse(status).getroot()  # noqa: S314 - libvirt's own file
    except (OSError, ET.ParseError):
        return False  # ignored by libvirt, too
    return state.tag == "domstatus" and state.get("pid", "0") == "0"


def _end_processes(roots: Collection[Path], name: str) -> bool:
    """Kill the QEMUs of this domain; return whether none is left."""
    deadline = time.monotonic() + _KILL_SECONDS
    while pids := list(_processes(roots, name)):
        if time.monotonic() > deadline:
            return False
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return True


def _processes(roots: Collection[Path], name: str) -> Iterator[int]:
    """Yield the ids of QEMUs of these roots with this domain's name. A process that has ended has no command line."""
    folders = [os.fsencode(root / "lib" / "qemu") + b"/" for root in roots]
    guest = f"guest={name},".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            ours = any(folder in word for word in words for folder in folders)
            if ours and any(word.startswith(guest) for word in words):
                yield int(entry.name)
