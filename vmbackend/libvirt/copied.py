"""The libvirt driver's snapshots, disks taken from them, and flattening: `vmbackend.copies` by its parts."""

from __future__ import annotations

from typing import Any

from vmbackend.copies import AT_ONCE, AfterSnapshot, Copied, CopyPace, Difference, StoredSnapshot
from vmbackend.driver import MachineState
from vmbackend.errors import InvalidMachineState, MachineNotFound
from vmbackend.libvirt.attachment import NetworkAttachment
from vmbackend.libvirt.capacity import require_memory
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.disk_making import DiskMaker
from vmbackend.libvirt.domain import Domains
from vmbackend.libvirt.flattening import Flattener
from vmbackend.libvirt.inventory import HostInventory
from vmbackend.libvirt.layers import is_stale
from vmbackend.libvirt.loads import end_unfinished_load
from vmbackend.libvirt.power import UP, Power
from vmbackend.libvirt.provisioner import Provisioner
from vmbackend.libvirt.record import MachineDir, Record
from vmbackend.libvirt.saved_state import SavedStateManager
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.snapshot_store import SnapshotStore
from vmbackend.libvirt.snapshots import SnapshotRequest, Snapshots
from vmbackend.libvirt.starting import Confiner
from vmbackend.libvirt.watch import EventWatcher
from vmbackend.power import StartedFrom


class CopiedMachines(Copied):
    """`Copied` for a driver that has these parts."""

    _settings: LibvirtSettings
    _libvirt: LibvirtConnection
    _domains: Domains
    _inventory: HostInventory
    _saved_state: SavedStateManager
    _watch: EventWatcher
    _provisioner: Provisioner
    _snapshots: Snapshots
    _snapshot_store: SnapshotStore
    _disks: DiskMaker
    _flattener: Flattener
    _confiner: Confiner
    _attachment: NetworkAttachment
    _power: Power

    def snapshot(
        self,
        machine_id: str,
        snapshot_id: str,
        *,
        after: AfterSnapshot = AfterSnapshot.RESUME,
        memory: bool = True,
    ) -> StoredSnapshot:
        target, record = self._find_machine(machine_id)
        self._watch.require_settled(machine_id)
        files = self._inventory.machine_dir(machine_id)
        made = self._snapshot_store.find(snapshot_id)
        if made is None:
            record = self._disks.as_taken(self._libvirt.connection, target, files, record)
            made = self._snapshots.make(target, files, record, SnapshotRequest(snapshot_id, after, memory=memory))
        state = self._saved_state.state(target, files)
        if after is AfterSnapshot.PAUSED and state in UP:
            self.pause(machine_id)
        elif after is AfterSnapshot.STOP and state is not MachineState.OFF:
            self.destroy(machine_id)
        return made

    def find_snapshot(self, snapshot_id: str) -> StoredSnapshot | None:
        return self._snapshot_store.find(snapshot_id)

    def remove_snapshot(self, snapshot_id: str) -> None:
        self._snapshot_store.remove(snapshot_id)

    def compare_snapshot(self, snapshot_id: str) -> tuple[Difference, ...]:
        return self._snapshot_store.compare(snapshot_id, self._provisioner.domain_type)

    def take_disk(self, machine_id: str, snapshot_id: str) -> None:
        target, record = self._find_machine(machine_id)
        files = self._inventory.machine_dir(machine_id)
        self._require_off(target, files)
        self._disks.take(self._libvirt.connection, target, files, record, snapshot_id)

    def require_room(self, machine_id: str, disk_mb: int, *, snapshot_id: str = "", from_memory: bool = False) -> None:
        files = self._inventory.machine_dir(machine_id)
        self._disks.require_room(files, disk_mb, snapshot_id, from_memory=from_memory)

    def reset_disk(self, machine_id: str) -> None:
        target, record = self._find_machine(machine_id)
        files = self._inventory.machine_dir(machine_id)
        self._require_off(target, files)
        self._disks.empty(self._libvirt.connection, target, files, record)

    def load(self, machine_id: str, snapshot_id: str) -> StartedFrom | None:
        target, record = self._find_machine(machine_id)
        self._watch.require_settled(machine_id)
        files = self._inventory.machine_dir(machine_id)
        entry = self._snapshot_store.find_entry(snapshot_id)
        end_unfinished_load(target, files)
        state = self._saved_state.state(target, files)
        if state in UP:
            return None
        if state is not MachineState.OFF or record.chain.taken != snapshot_id:
            raise InvalidMachineState("The machine is not off, or its disk is not the snapshot's as it was taken.")
        self._snapshot_store.require_loadable(entry, record, self._provisioner.domain_type)
        require_memory(self._settings, record.memory_mb)
        hooks = self._confiner.hooks(files, record, self._attachment.port_of(record))
        # First: from here on its disk may differ from the snapshot's memory.
        self._disks.note_start(files, record)
        self._power.load(entry, target, files, hooks)
        return StartedFrom.SNAPSHOT

    def stale_disks(self) -> dict[str, int]:
        found = {}
        domains = self._domains.list(self._libvirt.connection)
        for files in self._inventory.machine_dirs():
            record, target = files.read_record(), domains.get(files.id)
            if record is None or target is None or not is_stale(files, record.chain):
                continue
            if self._saved_state.state(target, files) is not MachineState.ASLEEP:
                found[files.id] = self._flattener.needed_mb(files, record)
        return found

    def flatten(self, machine_id: str, timeout: float, pace: CopyPace = AT_ONCE) -> None:
        target, record = self._find_machine(machine_id)
        self._watch.require_settled(machine_id)
        files = self._inventory.machine_dir(machine_id)
        if self._saved_state.state(target, files) is MachineState.ASLEEP:
            raise InvalidMachineState("The machine sleeps: wake or stop it first.")
        self._flattener.flatten(self._libvirt.connection, target, files, record, timeout, pace=pace)

    def _require_off(self, target: Any, files: MachineDir) -> None:
        if self._saved_state.state(target, files) is not MachineState.OFF:
            raise InvalidMachineState("The machine is not off.")

    def _find_machine(self, machine_id: str) -> tuple[Any, Record]:
        target = self._domains.find(self._libvirt.connection, machine_id)
        record = self._inventory.record(machine_id)
        if record is None:
            raise MachineNotFound("The machine's files are not on this host.")
        return target, record

    def pause(self, machine_id: str) -> None:
        raise NotImplementedError

    def destroy(self, machine_id: str) -> None:
        raise NotImplementedError
