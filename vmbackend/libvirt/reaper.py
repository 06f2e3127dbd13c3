"""Reaping the QEMUs of an embedded libvirt.

libvirt detaches them, so that they outlive this process, and at their end waits until they are gone: until somebody has
reaped them. That is PID 1's work, and a container's PID 1 does it late (2 s were seen) or never. So this process takes
them as its own children (PR_SET_CHILD_SUBREAPER) and reaps them at once; should it die, PID 1 has them as before.
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
# Children of tools that were killed become ours too. One that nobody has waited for so long, nobody waits for.
_FORGOTTEN_SECONDS = 120.0
_started = threading.Lock()


def start_reaper() -> None:
    """Once for each process, for its life."""
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
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # until a child has ended; it is not reaped by this
        except ChildProcessError:
            time.sleep(_NO_CHILDREN_SECONDS)
            continue
        dead = _dead_children()
        now = time.monotonic()
        seen = {pid: seen.get(pid, now) for pid in dead}
        ours = [pid for pid, machine in dead.items() if machine or now - seen[pid] > _FORGOTTEN_SECONDS]
        for pid in ours:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        # Others are their parents' (subprocess, libvirt's own commands); meanwhile they answer every waitid.
        pause = _FIRST_PAUSE if ours else min(_LONGEST_PAUSE, pause * 2)
        time.sleep(pause)


def _dead_children() -> dict[int, bool]:
    """Pid -> whether it was a machine that libvirt had detached."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            for pid in (task / "children").read_text().split():
                fields = _stat(int(pid))
                if fields is not None and fields[1] == "Z":
                    found[int(pid)] = _is_machine(int(pid), fields)
    return found


def _stat(pid: int) -> tuple[str, str, int] | None:
    """Name, state, session."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    fields = rest.split()
    return name, fields[0], int(fields[3])


def _is_machine(pid: int, fields: tuple[str, str, int]) -> bool:
    """A detached one: in a session that neither we nor itself began. One of our own making is waited for elsewhere.

    A resolver's first half begins a session, makes the second half and ends; nobody waits for either of them.
    """
    name, _, session = fields
    if name == _RESOLVER:
        return session != os.getsid(0)
    return name.startswith(_NAME) and session not in (pid, os.getsid(0))
