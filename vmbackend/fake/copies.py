"""Snapshots of the fake host: folders with a copy of a machine's tree, and of its memory unless it was off.

    snapshots/ID/manifest.json   definition and sizes        snapshots/ID/disk/    the tree
    snapshots/ID/memory          the machine's memory        snapshots/ID/differs.json   a test's differences

A snapshot is written beside its place and renamed. A machine copies what it takes, so that nothing is shared.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vmbackend.copies import AT_ONCE, AfterSnapshot, CopyPace, Difference, StoredSnapshot
from vmbackend.driver import Event, EventKind, MachineState, StopReason
from vmbackend.errors import (
    CapacityExceeded,
    DeadlineExceeded,
    InvalidMachineState,
    SnapshotIncompatible,
    SnapshotNotFound,
)
from vmbackend.fake.machines import IN_MEMORY, POLL, TAKEN_FILE, FakeMachines
from vmbackend.fake.store import MEMORY_FILE, Domain
from vmbackend.power import StartedFrom

# The guest's file that has another UUID after each load.
GENERATION = Path("run/kit/generation")
_PARTIAL = "."
# What a disk that is taken needs at once.
_LAYER_MB = 8


class FakeCopies(FakeMachines):
    """The contract of `vmbackend.copies`, and what tests need of it.

    `crash_hook` is called with `snapshot:half`, `snapshot:written` and `load:before_run`.
    """

    def snapshot(
        self,
        machine_id: str,
        snapshot_id: str,
        *,
        after: AfterSnapshot = AfterSnapshot.RESUME,
        memory: bool = True,
    ) -> StoredSnapshot:
        """See Copied.snapshot."""
        self._enter("snapshot")
        with self._store.locked():
            domain = self._known(machine_id)
            found = self._stored(snapshot_id)
            if found is None:
                self._write_snapshot(domain, snapshot_id, memory=memory)
                found = self._require_stored(snapshot_id)
            self._hook("snapshot:written")
            self._follow(domain, after)
        return found

    def find_snapshot(self, snapshot_id: str) -> StoredSnapshot | None:
        """See Copied.find_snapshot."""
        self._enter("find_snapshot")
        return self._stored(snapshot_id)

    def remove_snapshot(self, snapshot_id: str) -> None:
        """See Copied.remove_snapshot."""
        self._enter("remove_snapshot")
        with self._store.locked():
            shutil.rmtree(self._store.snapshot(snapshot_id), ignore_errors=True)
            shutil.rmtree(self._store.root / "exports" / snapshot_id, ignore_errors=True)

    def compare_snapshot(self, snapshot_id: str) -> tuple[Difference, ...]:
        """See Copied.compare_snapshot."""
        self._enter("compare_snapshot")
        self._require_stored(snapshot_id)
        differs = self._store.snapshot(snapshot_id) / "differs.json"
        return tuple(Difference(**each) for each in json.loads(differs.read_text())) if differs.exists() else ()

    def take_disk(self, machine_id: str, snapshot_id: str) -> None:
        """See Copied.take_disk."""
        self._enter("take_disk")
        with self._store.locked():
            domain, stored = self._known(machine_id), self._require_stored(snapshot_id)
            if domain.state is not MachineState.OFF:
                raise InvalidMachineState("The machine is not off.")
            if domain.spec.disk_mb < stored.disk_mb:
                raise InvalidMachineState("The machine's disk is smaller than the snapshot's.")
            self._require_disk(_LAYER_MB)
            self._copy_disk(snapshot_id, self._store.directory(machine_id))

    def require_room(self, machine_id: str, disk_mb: int, *, snapshot_id: str = "", from_memory: bool = False) -> None:
        """See Copied.require_room."""
        self._enter("require_room")
        domain = self._store.domain(machine_id)
        if snapshot_id and self._require_stored(snapshot_id).disk_mb > disk_mb:
            raise InvalidMachineState("The machine's disk is smaller than the snapshot's.")
        grows = max(0, disk_mb - (0 if domain is None else domain.spec.disk_mb))
        self._require_disk(grows + (_LAYER_MB if snapshot_id else 0))

    def load(self, machine_id: str, snapshot_id: str) -> StartedFrom | None:
        """See Copied.load."""
        with self._store.locked():
            domain, stored = self._known(machine_id), self._require_stored(snapshot_id)
            if domain.state in IN_MEMORY:
                return None
            self._enter("load")
            self._check_load(domain, stored)
            self._hook("load:before_run")
            self._run_loaded(domain, snapshot_id)
            return StartedFrom.SNAPSHOT

    def flatten(self, machine_id: str, timeout: float, pace: CopyPace = AT_ONCE) -> None:
        """See Copied.flatten. Nothing is shared here; a disk that a test made stale is none afterwards."""
        deadline = time.monotonic() + min(timeout, self.delays.get("flatten", 0.0))
        self._raise_fault("flatten")
        if self._known(machine_id).state is MachineState.ASLEEP:
            raise InvalidMachineState("The machine is asleep.")
        self._require_disk(self.stale.get(machine_id, 0))
        self._hook("flatten:half")
        while time.monotonic() < deadline:
            if pace.give_up():
                raise DeadlineExceeded("The copy was given up.")
            time.sleep(POLL)
        self.stale.pop(machine_id, None)

    def stale_disks(self) -> dict[str, int]:
        """See Copied.stale_disks: those of `stale`, which a test fills."""
        self._enter("stale_disks")
        domains = self._store.domains()
        awake = {key for key, domain in domains.items() if domain.state is not MachineState.ASLEEP}
        return {key: needed for key, needed in self.stale.items() if key in awake}

    def set_differences(self, snapshot_id: str, *differs: Difference) -> None:
        """Let the snapshot's memory fit the host no more, or again."""
        path = self._store.snapshot(snapshot_id) / "differs.json"
        self._store.write(path, json.dumps([asdict(each) for each in differs]))

    def set_memory(self, machine_id: str, text: str) -> None:
        """Write into the memory of a machine that has a process."""
        if self._known(machine_id).state not in IN_MEMORY:
            raise InvalidMachineState("The machine does not run.")
        self._store.write(self._store.directory(machine_id) / MEMORY_FILE, text)

    def memory_of(self, machine_id: str) -> str:
        """Return what the machine's memory contains; nothing after a boot."""
        path = self._store.directory(machine_id) / MEMORY_FILE
        return path.read_text() if path.exists() else ""

    def generation_of(self, machine_id: str) -> str:
        """Return the generation that the guest was last given by a load; empty if there was none."""
        path = self._store.directory(machine_id) / "disk" / GENERATION
        return path.read_text() if path.exists() else ""

    def _stored(self, snapshot_id: str) -> StoredSnapshot | None:
        raw = self._manifest(snapshot_id)
        if raw is None:
            return None
        return StoredSnapshot(snapshot_id, raw["memory"], raw["size_bytes"], raw["disk_mb"], raw["made_at"])

    def _manifest(self, snapshot_id: str) -> dict[str, Any] | None:
        path = self._store.snapshot(snapshot_id) / "manifest.json"
        if not path.exists():
            return None
        raw: dict[str, Any] = json.loads(path.read_text())
        return raw

    def _require_stored(self, snapshot_id: str) -> StoredSnapshot:
        found = self._stored(snapshot_id)
        if found is None:
            raise SnapshotNotFound(f"There is no snapshot {snapshot_id} on this host.")
        return found

    def _require_disk(self, needed_mb: int) -> None:
        if needed_mb > max(0, self._store.capacity().disk_free_mb):
            raise CapacityExceeded(f"The host has no {needed_mb} MiB of disk to spare.")

    def _write_snapshot(self, domain: Domain, snapshot_id: str, *, memory: bool) -> None:
        """Write the snapshot beside its place and rename it. An error leaves nothing."""
        memory = memory and domain.state is not MachineState.OFF
        used = self._allocated_bytes(domain.spec.id)
        size = used + (domain.spec.memory_mb << 20 if memory else 0)
        if size > self._store.capacity().disk_free_mb << 20:
            raise CapacityExceeded("The host lacks disk space for the snapshot.")
        beside = self._store.snapshot(f"{_PARTIAL}{snapshot_id}")
        shutil.rmtree(beside, ignore_errors=True)
        try:
            self._copy_machine(domain, beside, memory, size)
            self._hook("snapshot:half")
        except Exception:  # anything else simulates the death of the process, without clean-up
            shutil.rmtree(beside, ignore_errors=True)
            raise
        beside.rename(self._store.snapshot(snapshot_id))

    def _copy_machine(self, domain: Domain, beside: Path, memory: bool, size: int) -> None:
        source, spec = self._store.directory(domain.spec.id), domain.spec
        shutil.copytree(source / "disk", beside / "disk", symlinks=True, ignore=_special_files)
        if memory:
            (beside / MEMORY_FILE).write_text(self.memory_of(spec.id))
        manifest = {
            "memory": memory,
            "size_bytes": size,
            "disk_mb": spec.disk_mb,
            "made_at": time.time(),
            "image": spec.image,
            "cpus": spec.cpus,
            "memory_mb": spec.memory_mb,
        }
        (beside / "manifest.json").write_text(json.dumps(manifest))

    def _follow(self, domain: Domain, after: AfterSnapshot) -> None:
        """Put the machine into the state that it is to have after the snapshot."""
        if after is AfterSnapshot.PAUSED and domain.state is MachineState.RUNNING:
            self._switch(domain.spec.id, MachineState.PAUSED)
        elif after is AfterSnapshot.STOP and domain.state in IN_MEMORY:
            self._stop(domain, StopReason.DESTROYED)
        elif after is AfterSnapshot.STOP and domain.state is MachineState.ASLEEP:
            self._drop_memory(domain)

    def _copy_disk(self, snapshot_id: str, directory: Path) -> None:
        """Replace the disk in a machine's folder. Directories cannot be exchanged atomically, as in a reset."""
        disk, old, new = (directory / name for name in ("disk", "disk.old", "disk.new"))
        for left in (old, new):
            shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(self._store.snapshot(snapshot_id) / "disk", new, symlinks=True)
        disk.rename(old)
        new.rename(disk)
        shutil.rmtree(old, ignore_errors=True)
        self._store.write(directory / TAKEN_FILE, snapshot_id)

    def _check_load(self, domain: Domain, stored: StoredSnapshot) -> None:
        if domain.state is not MachineState.OFF:
            raise InvalidMachineState("The machine is not off.")
        self._check_fits(domain, stored)
        if domain.spec.memory_mb > self._store.capacity().memory_free_mb:
            raise CapacityExceeded("The host has not enough free memory.", resource="memory_mb")

    def _check_fits(self, domain: Domain, stored: StoredSnapshot) -> None:
        """Raise SnapshotIncompatible unless the machine can go on with the snapshot's memory."""
        raw = self._manifest(stored.id) or {}
        same = (domain.spec.cpus, domain.spec.memory_mb, domain.spec.image) == (
            raw["cpus"],
            raw["memory_mb"],
            raw["image"],
        )
        if not stored.memory or not same or self.compare_snapshot(stored.id):
            raise SnapshotIncompatible("The snapshot's memory does not fit this machine.")

    def _run_loaded(self, domain: Domain, snapshot_id: str) -> None:
        """Let the machine go on from the snapshot's memory."""
        memory = self._store.directory(domain.spec.id) / MEMORY_FILE
        shutil.copyfile(self._store.snapshot(snapshot_id) / MEMORY_FILE, memory)
        self._run_renewed(domain)

    def _run_renewed(self, domain: Domain) -> None:
        """Let the machine go on from what its memory is, with a generation of its own."""
        machine_id, directory = domain.spec.id, self._store.directory(domain.spec.id)
        (directory / TAKEN_FILE).unlink(missing_ok=True)
        generation = directory / "disk" / GENERATION
        generation.parent.mkdir(parents=True, exist_ok=True)
        self._store.write(generation, f"{uuid.uuid4()}\n")
        now = time.time()
        domain = self._store.save(domain, state=MachineState.RUNNING, ready_at=now, exit_code=None, resync_count=1)
        self._store.post(Event(machine_id, EventKind.READY))
        if self._run_commands and domain.spec.boot.cmd is not None:
            self._run_main(domain, domain.spec.boot.cmd)


def _special_files(folder: str, names: list[str]) -> list[str]:
    """Return names that `copytree` cannot copy: pipes and sockets."""
    return [name for name in names if not _is_copied(Path(folder) / name)]


def _is_copied(path: Path) -> bool:
    return path.is_symlink() or path.is_file() or path.is_dir()
