"""The libvirt driver: the contract of `vmbackend.driver` over libvirt, QEMU, a bridge and nftables."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vmbackend.capabilities import HostCapabilities
from vmbackend.driver import (
    Capacity,
    Driver,
    Event,
    Inventory,
    MachineEnd,
    MachineIdentity,
    MachineSpec,
    MachineState,
)
from vmbackend.errors import (
    BackendError,
    BackendUnavailable,
    DeadlineExceeded,
    InvalidMachineState,
)
from vmbackend.libvirt import agent, domain
from vmbackend.libvirt.assignment import Assigner
from vmbackend.libvirt.attachment import NetworkAttachment
from vmbackend.libvirt.capabilities import ask_host
from vmbackend.libvirt.capacity import capacity, require_memory
from vmbackend.libvirt.connection import LibvirtConnection, probe_capabilities
from vmbackend.libvirt.disk_making import DiskMaker
from vmbackend.libvirt.events import Events
from vmbackend.libvirt.flattening import Flattener
from vmbackend.libvirt.inventory import HostInventory
from vmbackend.libvirt.layers import allocated_bytes
from vmbackend.libvirt.loads import end_unfinished_load, end_unfinished_loads, set_late_clock
from vmbackend.libvirt.meters import Meters
from vmbackend.libvirt.moved import MovedMachines
from vmbackend.libvirt.moved_memory import MovedMemory
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.network_maintainer import NetworkMaintainer, port_for
from vmbackend.libvirt.orphans import AsideMachines
from vmbackend.libvirt.power import UP, Power
from vmbackend.libvirt.probe import find_domain_type
from vmbackend.libvirt.provisioner import Provisioner
from vmbackend.libvirt.qemu_logs import QemuLogs
from vmbackend.libvirt.reached import ReachedMachines
from vmbackend.libvirt.readiness import wait_for_guest
from vmbackend.libvirt.record import MachineDir, Record
from vmbackend.libvirt.resync import resync_clock_and_entropy
from vmbackend.libvirt.saved_state import SavedStateManager
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.snapshot_store import SnapshotStore
from vmbackend.libvirt.snapshots import Snapshots
from vmbackend.libvirt.starting import Confiner
from vmbackend.libvirt.templates import Templates
from vmbackend.libvirt.watch import EventWatcher
from vmbackend.policy import NetworkPolicy
from vmbackend.power import StartedFrom
from vmbackend.samples import GuestDisk, Sample

log = logging.getLogger(__name__)

# Longer than a boot takes on a busy host. Until then, or until it is ready, a machine runs without its CPU quota.
_BOOT_SECONDS = 20.0


class LibvirtDriver(MovedMachines, ReachedMachines, AsideMachines, Driver):
    """One host's machines under libvirt."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._settings = settings
        self._capabilities = HostCapabilities()
        self._events = Events(settings.boot_log_bytes)
        self._network = Network(settings)
        self._domains = domain.Domains(settings.instance)
        self._saved_state = SavedStateManager(settings)
        self._watch = EventWatcher(self._domains, self._events, self._saved_state)
        self._libvirt = LibvirtConnection(settings, self._connected, self._watch.unregister)
        self._inventory = HostInventory(settings, self._network, self._saved_state)
        self._attachment = NetworkAttachment(self._network, self._inventory, disabled=settings.is_test)
        self._confiner = Confiner(settings)
        access = self._confiner.access
        self._templates = Templates(settings, self._libvirt, access)
        self._power = Power(settings, self._libvirt, self._events, self._saved_state, self._templates)
        layers = self._confiner.layers
        self._flattener = Flattener(settings, access, layers)
        self._snapshot_store = store = SnapshotStore(settings, self._libvirt)
        self._snapshots = Snapshots(settings, self._libvirt, self._flattener, self._saved_state, store)
        self._disks = DiskMaker(settings, self._domains, layers, self._flattener, store)
        self._provisioner = Provisioner(settings, self._network, self._saved_state, access, self._disks)
        self._assigner = Assigner(self._provisioner, self._attachment, self._power)
        self._qemu_logs = QemuLogs(settings)
        self._maintainer = NetworkMaintainer(self._network, self._inventory.machine_dirs, self._qemu_logs.limit_sizes)
        self._meters = Meters(self._libvirt, self._domains, self._inventory.machine_dir)

    def open(self, on_event: Callable[[Event], None]) -> None:
        self._settings.check()
        self._settings.machines_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._provisioner.domain_type = find_domain_type(self._settings)
        self._confiner.open(self._provisioner.domain_type)
        self._events.start(on_event)
        try:
            # Before libvirt, which may end a machine that was powering off, and with it the content of its pipes.
            for files in self._inventory.machine_dirs():
                if files.read_status().running:
                    self._events.adopt(files)
            if not self._settings.is_test:
                self._network.install(port_for(record) for record in self._inventory.records())
                self._maintainer.start()
            self._snapshot_store.store.open()
            self._libvirt.open()
            self._templates.open()
            self._qemu_logs.remove_others(self._inventory.machine_ids())
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                log.exception("open")
                raise BackendUnavailable("The hypervisor cannot be set up on this host (is this root?).") from error
            raise

    def close(self) -> None:
        self._maintainer.stop()
        self._templates.close()
        self._libvirt.close()
        self._events.stop()

    def uninstall(self) -> None:
        """Remove bridge, taps, firewall tables and mounts. For tear-down: running machines lose their network."""
        self._network.uninstall()
        self._confiner.uninstall()

    def capacity(self) -> Capacity:
        found = capacity(self._settings, accelerated=self._provisioner.domain_type == "kvm")
        return replace(found, templates=self._templates.describe(), capabilities=self._capabilities)

    def prepare(self, spec: MachineSpec) -> MachineIdentity:
        self._watch.deleting.discard(spec.id)
        found = self._domains.find_or_none(self._libvirt.connection, spec.id)
        end_unfinished_load(found, self._inventory.machine_dir(spec.id))
        return self._provisioner.prepare(self._libvirt.connection, spec)

    def start(self, machine_id: str) -> StartedFrom | None:
        target, record = self._find_machine(machine_id)
        self._watch.require_settled(machine_id)
        files = self._inventory.machine_dir(machine_id)
        end_unfinished_load(target, files)
        state = self._saved_state.state(target, files)
        if state is MachineState.RUNNING:
            return None
        if state is MachineState.PAUSED:
            # Possibly by a wake that failed after the restore, and whose clean-up failed, too.
            self._complete_start(target, record)
            self.resume(machine_id)
            return None
        require_memory(self._settings, record.memory_mb)
        if state is MachineState.ASLEEP and MovedMemory(files).exists:
            return self._wake_moved(target, files, record)
        if state is MachineState.OFF:
            record = self._disks.ready_for_boot(self._libvirt.connection, target, files, record)
        hooks = self._confiner.hooks(files, record, self._attachment.port_of(record))
        return self._power.start(target, files, hooks, asleep=state is MachineState.ASLEEP)

    def assign(self, spec: MachineSpec) -> None:
        target, record = self._find_machine(spec.id)
        files = self._inventory.machine_dir(spec.id)
        if self._saved_state.state(target, files) is not MachineState.PAUSED or not files.unassigned.exists():
            raise InvalidMachineState("The machine does not wait for its assignment.")
        self._watch.require_settled(spec.id)
        if not self._confiner.has_limited(spec.id):
            self._complete_start(target, record)
        self._assigner.assign(target, files, spec)

    def wait_ready(self, machine_id: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        _, record = self._find_machine(machine_id)
        self._events.raise_if_exited(machine_id)
        if self._settings.is_test:
            return  # the mock hypervisor's machines have no guest
        try:
            boot_deadline = min(deadline, time.monotonic() + _BOOT_SECONDS)
            wait_for_guest(self._events, machine_id, record.ip, boot_deadline)
        except DeadlineExceeded:
            # A guest that never becomes ready must not run without its quota.
            self._apply_cpu_quota(machine_id)
            wait_for_guest(self._events, machine_id, record.ip, deadline)
        self._apply_cpu_quota(machine_id)
        set_late_clock(self._inventory.machine_dir(machine_id))

    def shutdown(self, machine_id: str, grace: float) -> bool:
        state = self.state(machine_id)
        if state in (MachineState.OFF, MachineState.ABSENT):
            return True
        powered_off = state is MachineState.ASLEEP or self._powers_off(machine_id, state, grace)
        self.destroy(machine_id)
        return powered_off

    def destroy(self, machine_id: str) -> None:
        target = self._domains.find_or_none(self._libvirt.connection, machine_id)
        self._power.destroy(target, self._inventory.machine_dir(machine_id))
        self._attachment.remove_neighbour(self._inventory.record(machine_id))

    def delete(self, machine_id: str) -> None:
        target = self._domains.find_or_none(self._libvirt.connection, machine_id)
        files = self._inventory.machine_dir(machine_id)
        if target is not None:
            self._watch.deleting.add(machine_id)
            self.destroy(machine_id)
            domain.undefine_domain(target)
        self._saved_state.drop_all(files)
        # Before the directory: without it nothing of the machine would be an orphan any more.
        self._withdraw(files)
        _remove(files)

    def pause(self, machine_id: str) -> None:
        target = self._find_process(machine_id)
        with domain.translate_errors("pause"):
            if domain.state_of(target) is MachineState.RUNNING:
                target.suspend()
        self._attachment.remove_neighbour(self._inventory.record(machine_id))

    def resume(self, machine_id: str) -> None:
        target = self._find_process(machine_id)
        record = self._inventory.record(machine_id)
        paused = domain.state_of(target) is MachineState.PAUSED
        if paused and not self._confiner.has_limited(machine_id):
            # An earlier process made the machine, and may have died in the middle of its start.
            self._complete_start(*self._find_machine(machine_id))
        self._attachment.add_neighbour(record)
        if paused:
            self._saved_state.drop_loaded_memory(self._inventory.machine_dir(machine_id))
            domain.resume_domain(target)

    def sleep(self, machine_id: str) -> None:
        target, record = self._find_machine(machine_id)
        files = self._inventory.machine_dir(machine_id)
        if self._saved_state.state(target, files) is MachineState.ASLEEP:
            return
        self._find_process(machine_id)
        self._saved_state.save_memory(target, files, record.memory_mb)
        self._power.wait_until_stopped(machine_id)
        self._attachment.remove_neighbour(record)

    def resync_guest(self, machine_id: str) -> None:
        target = self._domains.find(self._libvirt.connection, machine_id)
        if domain.state_of(target) is not MachineState.RUNNING:
            raise InvalidMachineState("The machine does not run.")
        try:
            resync_clock_and_entropy(self._inventory.machine_dir(machine_id))
        finally:
            self._apply_cpu_quota(machine_id)

    def set_network(self, machine_id: str, policy: NetworkPolicy) -> None:
        self._find_machine(machine_id)
        self._attachment.change_policy(machine_id, policy)

    def agent_responds(self, machine_id: str, timeout: float) -> bool:
        target = self._domains.find(self._libvirt.connection, machine_id)
        return domain.state_of(target) is MachineState.RUNNING and agent.agent_responds(target, timeout)

    def samples(self, machine_ids: Collection[str]) -> dict[str, Sample]:
        return self._meters.samples(machine_ids)

    def guest_disk(self, machine_id: str, timeout: float) -> GuestDisk:
        return self._meters.guest_disk(machine_id, timeout)

    def state(self, machine_id: str) -> MachineState:
        target = self._domains.find_or_none(self._libvirt.connection, machine_id)
        return (
            MachineState.ABSENT
            if target is None
            else self._saved_state.state(target, self._inventory.machine_dir(machine_id))
        )

    def last_end(self, machine_id: str) -> MachineEnd:
        target = self._domains.find_or_none(self._libvirt.connection, machine_id)
        files = self._inventory.machine_dir(machine_id)
        return self._events.last_end(files, domain.stop_reason_or_lost(target))

    def inventory(self) -> Inventory:
        return self._inventory.read_inventory(self._domains.list(self._libvirt.connection))

    def disk_allocations(self) -> dict[str, int]:
        return {files.id: allocated_bytes(files) for files in self._inventory.machine_dirs()}

    def boot_log(self, machine_id: str) -> Path:
        return self._inventory.machine_dir(machine_id).boot_log

    def definition(self, machine_id: str) -> dict[str, object]:
        target, record = self._find_machine(machine_id)
        with domain.translate_errors("describe"):
            return {"format": "libvirt-domain", "xml": target.XMLDesc(0), "machine": asdict(record)}

    def _connected(self, connection: Any) -> None:
        self._watch.register(connection)
        if not self._settings.is_test:
            domain_type = self._provisioner.domain_type
            self._capabilities = ask_host(connection, domain_type, probe_capabilities(connection, domain_type))
        end_unfinished_loads(connection, self._domains, self._inventory.machine_dirs())
        self._watch.reconcile_machines(connection, self._inventory.machine_dirs())
        self._confiner.layers.settle_all(connection, self._domains, self._inventory.machine_dirs())

    def _complete_start(self, target: Any, record: Record) -> None:
        """Attach and limit a machine whose CPUs are stopped, and which may have neither yet. Idempotent."""
        port = self._attachment.port_of(record)
        port.attach()
        port.connect()
        self._confiner.limit(record, target)

    def _apply_cpu_quota(self, machine_id: str) -> None:
        self._power.apply_cpu_quota(*self._find_machine(machine_id))

    def _find_process(self, machine_id: str) -> Any:
        """Return the domain of a machine that has a process which answers."""
        target = self._domains.find(self._libvirt.connection, machine_id)
        if domain.state_of(target) not in UP:
            raise InvalidMachineState("The machine does not run.")
        self._watch.require_settled(machine_id)
        return target

    def _powers_off(self, machine_id: str, state: MachineState, grace: float) -> bool:
        try:
            if state is MachineState.PAUSED:
                self.resume(machine_id)
            self._watch.require_settled(machine_id)
            target = self._domains.find(self._libvirt.connection, machine_id)
            return self._power.press_power_button(target, machine_id, grace)
        except BackendError:
            # Its process died unnoticed by libvirt, or hangs: the destroy that follows handles both.
            return False


def _remove(files: MachineDir) -> None:
    try:
        files.remove()
    except OSError as error:
        raise BackendUnavailable("The machine's files could not be removed.") from error
