"""Kept orphans of the libvirt driver: `vmbackend.orphans` over folders beside the machines.

    <machines_dir>/.orphans/<id>.<epoch>.<seconds>/   the folder of the machine as it was, and:
                                                      domain.xml      its definition, as libvirt had it
                                                      memory.managed  memory that another program had libvirt save

A rename keeps it: whoever dies before has moved nothing, and the machine is in the inventory as before. Another rename
puts it back. A folder without `machine.json` is one whose removal has begun.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, InvalidMachineState, MachineNotFound
from vmbackend.libvirt import domain
from vmbackend.libvirt.attachment import NetworkAttachment
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.disks import allocated_bytes, write_atomically
from vmbackend.libvirt.events import Events
from vmbackend.libvirt.inventory import HostInventory
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.power import Power
from vmbackend.libvirt.qemu_logs import QemuLogs
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.saved_state import SavedStateManager
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.starting import Confiner
from vmbackend.libvirt.watch import EventWatcher
from vmbackend.orphans import KeepsOrphans, KeptOrphan
from vmbackend.trees import remove_tree

log = logging.getLogger(__name__)

FOLDER = ".orphans"
_NAME = re.compile(r"([a-z0-9_]{1,40})\.(\d{1,19})\.(\d{1,12})")


class AsideMachines(KeepsOrphans):
    """`KeepsOrphans` for a driver that has these parts."""

    _settings: LibvirtSettings
    _libvirt: LibvirtConnection
    _domains: domain.Domains
    _inventory: HostInventory
    _network: Network
    _saved_state: SavedStateManager
    _watch: EventWatcher
    _events: Events
    _power: Power
    _attachment: NetworkAttachment
    _confiner: Confiner
    _qemu_logs: QemuLogs

    def epoch_of(self, machine_id: str) -> int | None:
        return self._inventory.machine_dir(machine_id).epoch()

    def set_aside(self, machine_id: str) -> None:
        files = self._inventory.machine_dir(machine_id)
        epoch = files.epoch()
        if epoch is None:
            return
        target = self._domains.find_or_none(self._libvirt.connection, machine_id)
        try:
            if target is not None:
                self._take_from_libvirt(target, files)
            self._withdraw(files, has_address=not self._attachment.is_anothers(files.read_record()))
            self._folder.mkdir(mode=0o700, exist_ok=True)
            files.path.rename(self._folder / f"{machine_id}.{epoch}.{int(time.time())}")
        except OSError as error:
            log.exception("machine %s could not be set aside", machine_id)
            raise BackendUnavailable("The machine's files could not be set aside.") from error

    def kept_orphans(self) -> tuple[KeptOrphan, ...]:
        return tuple(sorted(self._read_orphans(), key=lambda orphan: (orphan.kept_since, orphan.name)))

    def put_back(self, name: str, epoch: int, ip: str) -> None:
        aside = self._orphan(name)
        files = self._inventory.machine_dir(name.partition(".")[0])
        if not aside.path.exists():
            if files.epoch() == epoch:
                return
            raise MachineNotFound("This host keeps no such orphan.")
        if files.path.exists() or self._domains.find_or_none(self._libvirt.connection, files.id) is not None:
            raise InvalidMachineState("The host has a machine of this id.")
        # A record with the address of another network would keep the firewall of all machines from being made.
        self._network.check_address(ip)
        try:
            with aside.changing():
                self._give_back(aside, files, epoch, ip)
        except OSError as error:
            log.exception("the orphan %s could not be put back", name)
            raise BackendUnavailable("The orphan's files could not be put back.") from error

    def _give_back(self, aside: MachineDir, files: MachineDir, epoch: int, ip: str) -> None:
        record = aside.read_record()
        if record is None:
            raise MachineNotFound("This host keeps no such orphan.")
        aside.write_record(replace(record, epoch=epoch, ip=ip))
        self._confiner.access.close_folder(aside)
        aside.path.rename(files.path)

    def remove_orphan(self, name: str) -> None:
        aside = self._orphan(name)
        with aside.changing():
            try:
                (aside.path / "machine.json").unlink(missing_ok=True)
            except OSError as error:
                raise BackendUnavailable("The orphan's files could not be removed.") from error
            if not remove_tree(aside.path):
                raise BackendUnavailable("The orphan's files could not be removed.")

    def _take_from_libvirt(self, target: Any, files: MachineDir) -> None:
        """End the process, and keep the definition and memory that libvirt saved in its own folder."""
        self._watch.deleting.add(files.id)
        state = self._saved_state.state(target, files)
        if state is MachineState.ASLEEP:
            managed = self._saved_state.memory_file(files)
            if managed != files.memory:
                managed.rename(files.managed_memory)
        elif state is not MachineState.OFF:
            self._power.destroy(target, files)
        with domain.translate_errors("describe"):
            xml = target.XMLDesc(0)
        write_atomically(files.path / "domain.xml", xml.encode())
        domain.undefine_domain(target)

    def _withdraw(self, files: MachineDir, *, has_address: bool = True) -> None:
        """Remove what the host has of a machine without a process, besides its folder: port, firewall, groups, log.

        Its address may be another machine's by now, which has the port then.
        """
        if has_address:
            self._attachment.detach(files.id, files.read_record())
        self._events.remove_run(files.id)
        self._confiner.remove_groups(files.id)
        self._qemu_logs.remove(files.id)

    @property
    def _folder(self) -> Path:
        return self._settings.machines_dir / FOLDER

    def _orphan(self, name: str) -> MachineDir:
        """Return the folder of an orphan. Raise MachineNotFound for a name that no orphan can have."""
        if not _NAME.fullmatch(name):
            raise MachineNotFound("This host keeps no such orphan.")
        return MachineDir(self._folder, name)

    def _read_orphans(self) -> Iterator[KeptOrphan]:
        for entry in self._folder.iterdir() if self._folder.is_dir() else ():
            if found := _NAME.fullmatch(entry.name):
                size = sum(allocated_bytes(path) for path in entry.glob("*"))  # another thread may remove it
                yield KeptOrphan(entry.name, found[1], int(found[2]), float(found[3]), size)
