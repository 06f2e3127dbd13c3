"""Machines at rest: which are, and copies of their folders that are of one moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervise.backup.copying import copy_folder, copy_sparse_folder
from supervise.removal import machines_that_run

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Trace:
    """Files that change with each start of the machine: the disk's and the saved memory's files."""

    disk: tuple[tuple[str, int, int], ...]  # name, bytes, nanoseconds of each of its layers
    memory: tuple[int, int]  # bytes, nanoseconds
    record: tuple[int, int]


def trace_of(folder: Path) -> Trace:
    def facts(name: str) -> tuple[int, int]:
        try:
            found = (folder / name).stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_size, found.st_mtime_ns

    disk = tuple((path.name, *facts(path.name)) for path in sorted(folder.glob("data*")))
    return Trace(disk, facts("memory"), facts("machine.json"))


def traces_at_rest(instance_id: str, machines: Path) -> dict[str, Trace]:
    """Return the trace of each machine that has no process now."""
    running = machines_that_run(instance_id)
    return {folder.name: trace_of(folder) for folder in machine_folders(machines) if folder.name not in running}


def save_machine(instance_id: str, folder: Path, target: Path, former: Path | None) -> bool:
    """Copy a machine's folder; False if it runs, or is none yet. Files of `former` that are unchanged since are linked.

    A start during the copy changes the disk: then it is copied again. Raise InstanceError.
    """
    for _ in range(_ATTEMPTS):
        before = trace_of(folder)
        if not before.record[0] or folder.name in machines_that_run(instance_id):
            return False
        _copy_machine(folder, target, former, before)
        if trace_of(folder) == before == trace_of(target) and folder.name not in machines_that_run(instance_id):
            return True
    return False


def _copy_machine(folder: Path, target: Path, former: Path | None, trace: Trace) -> None:
    """Copy by rsync if little can differ: it would read all of a disk that has changed, hole by hole."""
    if trace_of(target) == trace:
        copy_folder(folder, target, delete=True)
    elif former is not None and trace_of(former) == trace:
        copy_folder(folder, target, former=former, delete=True)
    else:
        copy_sparse_folder(folder, target)


def machine_folders(machines: Path) -> Iterator[Path]:
    """Yield the folder of every machine. A link does not count: its target would be copied, or written to."""
    yield from sorted(path for path in machines.glob("ws_*") if path.is_dir() and not path.is_symlink())
