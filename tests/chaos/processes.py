"""The processes of an instance as the faults and the checks see them, from /proc alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
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
    """Processes of the instance without its supervisord above them: by their mark, or by a path on the command line.

    Machines and their resolvers outlive supervisord; they are compared with the rows instead.
    """
    supervisor = control.supervisor_pid(instance.instance)
    named = {pid: name for pid, name in _with_path(f"{instance.state}/") if not name.startswith(("qemu-", "dnsmasq"))}
    found = []
    for pid, name in {**named, **instance.process_tree()}.items():
        above = pid
        while above > 1 and above != supervisor:
            above = parent_of(above)
        if above != supervisor and parent_of(pid):
            found.append(f"{name} {pid}")
    return sorted(found)


def _with_path(path: str) -> Iterator[tuple[int, str]]:
    """Processes whose command line has the path, with their names; supervisord's own has it too."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if path in (entry / "cmdline").read_bytes().decode(errors="replace"):
                yield int(entry.name), (entry / "comm").read_text().strip()


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """To those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
