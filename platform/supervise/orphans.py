"""Finds and ends orphans: processes of an instance that outlived the one that started them.

A supervised process carries the instance's id in its environment, and so does everything below it. A process of another
instance, a shell of an operator and a machine (libvirt starts QEMU with an environment of its own) do not. Imports
nothing of the platform: the launcher of every process waits for it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Variables of other processes, read from /proc: the settings `supervised` (the instance's id), `role` and `state`.
MARKER = "PLATFORM_SUPERVISED"
ROLE = "PLATFORM_ROLE"
STATE = "PLATFORM_STATE"
# The role of the instance's own database server.
DATABASE_ROLE = "postgres"


def end_orphans(instance_id: str, process: str | None = None, grace: float = 5.0) -> int:
    """End what carries the instance's mark (of one named process only, if given), and return how many there were.

    SIGTERM first; after `grace` seconds SIGKILL. The caller and its ancestors are left alone, and so is the database
    server, which the others need until they have ended (`postgres_processes.end_server`). Each process is checked again
    after its pidfd was opened, so that a reused pid never hits another program.
    """
    ancestors = _own_ancestors()

    def is_ours(pid: int) -> bool:
        if pid in ancestors or environment_of(pid).get(ROLE) == DATABASE_ROLE:
            return False
        return _carries(Path(f"/proc/{pid}"), instance_id, process)

    signalled = end_matching(is_ours, signal.SIGTERM, grace)
    return max(signalled, end_matching(is_ours, signal.SIGKILL, 2.0) if signalled else 0)


def end_matching(matches: Callable[[int], bool], sign: signal.Signals, wait: float) -> int:
    """Send `sign` to every process that `matches`, and return how many there were.

    Return as soon as all of them have ended, after `wait` seconds at the latest.
    """
    with _opened(matches) as descriptors:
        for descriptor in descriptors:
            _signal(descriptor, sign)
        _wait(descriptors, wait)
        return len(descriptors)


def is_marked(instance_id: str) -> bool:
    """Return whether any process on this host is a supervised one of the instance."""
    entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return any(_carries(entry, instance_id, None) for entry in entries)


def other_folder(instance_id: str, state: str) -> str | None:
    """Return another state folder whose processes run with the same id: what a restored instance shares with its
    original.
    """
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _carries(entry, instance_id, None):
            found = environment_of(int(entry.name)).get(STATE, "")
            if found and found != state:
                return found
    return None


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment a process was started with; empty if it has ended or may not be read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition("=") for item in raw.decode(errors="replace").split("\0") if "=" in item)
    return {key: value for key, _, value in pairs}


def _carries(entry: Path, instance_id: str, process: str | None) -> bool:
    environment = environment_of(int(entry.name))
    if environment.get(MARKER) != instance_id:
        return False
    if process is not None and environment.get(ROLE) != process:
        return False
    return not _is_machine(entry)


def _is_machine(entry: Path) -> bool:
    """Return whether it is a machine, which is never an orphan of its vmhost, whatever environment a future libvirt
    gives it.
    """
    try:
        return (entry / "comm").read_text().startswith("qemu-")
    except OSError:
        return True


@contextmanager
def _opened(matches: Callable[[int], bool]) -> Iterator[list[int]]:
    descriptors = []
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        if not matches(pid):
            continue
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        # Checked again, now that the pid cannot be reused.
        if matches(pid):
            descriptors.append(descriptor)
        else:
            os.close(descriptor)
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _signal(descriptor: int, sign: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(descriptor, sign)
    except ProcessLookupError:
        return


def _wait(descriptors: list[int], seconds: float) -> None:
    """Wait until every process has ended (its pidfd turns readable), or the time is up."""
    deadline = time.monotonic() + seconds
    waiting = set(descriptors)
    while waiting and (left := deadline - time.monotonic()) > 0:
        readable, _, _ = select.select(list(waiting), [], [], left)
        waiting -= set(readable)


def _own_ancestors() -> set[int]:
    """Return this process and its parents up to the first."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            # The second field may hold spaces and brackets; the parent stands second after the last bracket.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return found
