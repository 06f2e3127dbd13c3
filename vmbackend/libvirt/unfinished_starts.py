"""QEMUs of the former process of an embedded libvirt that a later one can neither use nor end.

libvirt writes a machine's state before it starts QEMU, and again with the process id. A later libvirt waits 30 seconds
for the monitor of a machine without a process id, and takes the machine for active for ever: it can neither be started
nor ended. So these notes are removed before libvirt is opened, with a QEMU that was started all the same: its CPUs
never ran, and memory that it was loading is still in its file.

libvirt 9.0 also writes states that it cannot read: one of a disk that just became another (`blockCopy`) has a copy
without its job. It forgets such a machine, whose QEMU would keep disk and network, and outlive the machine.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

log = logging.getLogger(__name__)

_KILL_SECONDS = 5.0
_NAME = b"guest="  # begins the argument with a domain's name


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


def end_forgotten_machines(connection: Any, root: Path, paths: Collection[Path]) -> None:
    """End the QEMUs of an embedded libvirt, opened just now, that run machines which it takes for off. Idempotent.

    Their disks are as after a loss of power. Raise libvirtError.
    """
    known = {target.name() for target in connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)}
    for name in {name for _, name in _find_processes(paths)} - known:
        if not _end_processes(paths, name):
            log.error("%s, which libvirt does not know any more, does not end", name)
            continue
        log.warning("%s is ended: libvirt could not read its state", name)
        status = root / "run" / "qemu" / f"{name}.xml"
        status.with_suffix(".pid").unlink(missing_ok=True)
        status.unlink(missing_ok=True)


def _has_no_pid(status: Path) -> bool:
    try:
        state = ET.parse(status).getroot()  # noqa: S314 - libvirt's own file
    except (OSError, ET.ParseError):
        return False  # ignored by libvirt, too
    return state.tag == "domstatus" and state.get("pid", "0") == "0"


def _end_processes(roots: Collection[Path], name: str) -> bool:
    """Kill the QEMUs of this domain; return whether none is left."""
    deadline = time.monotonic() + _KILL_SECONDS
    while pids := [pid for pid, found in _find_processes(roots) if found == name]:
        if time.monotonic() > deadline:
            return False
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return True


def _find_processes(roots: Collection[Path]) -> Iterator[tuple[int, str]]:
    """Yield the id of each QEMU of these roots, and its domain's name. One that has ended has no command line."""
    folders = [os.fsencode(root / "lib" / "qemu") + b"/" for root in roots]
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            names = [word.split(b",")[0].removeprefix(_NAME) for word in words if word.startswith(_NAME)]
            if names and any(folder in word for word in words for folder in folders):
                yield int(entry.name), os.fsdecode(names[0])
