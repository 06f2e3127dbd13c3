"""Reaping the QEMUs of an embedded libvirt.

libvirt detaches them, so that they outlive this process, and when one ends waits until it has been reaped. That is PID
1's task, and a container's PID 1 does it late (2 s were observed) or never. So this process adopts them
(PR_SET_CHILD_SUBREAPER) and reaps them at once; if it dies, PID 1 adopts them as usual.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER = 36
_NAME = "qemu-system"
_RESOLVER = "dnsmasq"
_NO_CHILDREN_SECONDS = 0.2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0
# Children of killed tools are adopted, too: reaped once no thread has waited for them for this long.
_UNCLAIMED_SECONDS = 120.0
_started = threading.Lock()


def start_reaper() -> None:
    """Start the reaper thread. Idempotent; it runs until the process ends."""
    if not _started.acquire(blocking=False):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        log.warning("cannot reap machines: %s", os.strerror(ctypes.get_errno()))
        return
    threading.Thread(target=_reap_for_ever, name="reaper", daemon=True).start()


def _reap_for_ever() -> None:
    pause, seen = _FIRST_PAUSE, dict[int, float]()
    while True:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # waits for a child's end without reaping it
        except ChildProcessError:
            time.sleep(_NO_CHILDREN_SECONDS)
            continue
        dead = _dead_children()
        now = time.monotonic()
        seen = {pid: seen.get(pid, now) for pid in dead}
        ours = [pid for pid, machine in dead.items() if machine or now - seen[pid] > _UNCLAIMED_SECONDS]
        for pid in ours:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        # Others are reaped by their callers (subprocess, libvirt's commands); until then waitid returns at once.
        pause = _FIRST_PAUSE if ours else min(_LONGEST_PAUSE, pause * 2)
        time.sleep(pause)


def _dead_children() -> dict[int, bool]:
    """Return zombie children: pid -> whether it was a machine that libvirt had detached."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            for pid in (task / "children").read_text().split():
                fields = _stat(int(pid))
                if fields is not None and fields[1] == "Z":
                    found[int(pid)] = _is_machine(int(pid), fields)
    return found


def _stat(pid: int) -> tuple[str, str, int] | None:
    """Return name, state and session."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    return name, fields[0], int(fields[3])


def _is_machine(pid: int, fields: tuple[str, str, int]) -> bool:
    """Return whether it is detached: in a session that neither this process nor itself leads. Others are waited for
    elsewhere.

    A resolver daemonizes: its first process creates a session and the second one, and no thread waits for either.
    """
    name, _, session = fields
    if name == _RESOLVER:
        return session != os.getsid(0)
    return name.startswith(_NAME) and session not in (pid, os.getsid(0))
