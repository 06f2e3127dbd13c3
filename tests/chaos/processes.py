"""The processes of an instance as the faults and the checks see them, from /proc alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from supervise import control
from tests.vm.instances import TestInstance


def parent_of(pid: int) -> int:
    """0 where the process has ended."""
    try:
        # The second field may hold spaces and brackets; the parent stands second after the last bracket.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def processes_of(instance: TestInstance, role: str) -> tuple[list[int], list[int]]:
    """Of one supervised process: itself (more than one where a predecessor's children live), and what it started."""
    pids = {pid for pid, found in instance.process_tree().items() if found == role}
    parents = {pid: parent_of(pid) for pid in pids}
    return (
        sorted(pid for pid, parent in parents.items() if parent not in pids),
        sorted(pid for pid, parent in parents.items() if parent in pids),
    )


def orphan_processes(instance: TestInstance) -> list[str]:
    """Processes of the instance without its supervisord above them."""
    supervisor = control.supervisor_pid(instance.instance)
    found = []
    for pid, role in instance.process_tree().items():
        above = pid
        while above > 1 and above != supervisor:
            above = parent_of(above)
        if above != supervisor and parent_of(pid):
            found.append(f"{role} {pid}")
    return sorted(found)


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """To those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
