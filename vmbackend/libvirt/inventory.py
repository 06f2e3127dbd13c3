"""The objects of one instance on its host: definitions, directories, ports, firewall entries, saved memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vmbackend.driver import Inventory
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.record import MachineDir, Record, machine_dirs
from vmbackend.libvirt.saved_state import SavedStateManager
from vmbackend.libvirt.settings import LibvirtSettings
from vmbackend.libvirt.snapshot_store import ids_in


class HostInventory:
    """The inventory of files and network; libvirt's domains are passed in."""

    def __init__(self, settings: LibvirtSettings, network: Network, saved_state: SavedStateManager) -> None:
        self._settings = settings
        self._network = network
        self._saved_state = saved_state

    def machine_dir(self, machine_id: str) -> MachineDir:
        """Return the machine's directory; it need not exist."""
        return MachineDir(self._settings.machines_dir, machine_id)

    def record(self, machine_id: str) -> Record | None:
        """Return the machine's record; None without one."""
        return self.machine_dir(machine_id).read_record()

    def machine_dirs(self) -> list[MachineDir]:
        return list(machine_dirs(self._settings.machines_dir))

    def machine_ids(self) -> frozenset[str]:
        return frozenset(files.id for files in self.machine_dirs())

    def records(self) -> list[Record]:
        return [record for files in self.machine_dirs() if (record := files.read_record()) is not None]

    def read_inventory(self, domains: Mapping[str, Any]) -> Inventory:
        """Return what `Driver.inventory` returns."""
        directories = self.machine_ids()
        admitted = {} if self._settings.is_test else self._network.attached_addresses()
        owners = {self._network.tap_for(ip): machine for machine, ip in admitted.items()}
        records = self.records()
        owners |= {self._network.tap_for(record.ip): record.id for record in records}
        known = frozenset(domains) | directories
        return Inventory(
            domains={
                machine: self._saved_state.state(target, self.machine_dir(machine))
                for machine, target in domains.items()
            },
            directories=directories,
            # An orphaned tap is listed by its own name, which `delete` accepts.
            taps=frozenset(owners.get(tap, tap) for tap in self._network.taps()),
            firewall=frozenset(admitted),
            snapshots=ids_in(self._settings.machines_dir),
            epochs={record.id: record.epoch for record in records},
            saved=self._saved_state.managed_image_ids()
            | frozenset(m for m in known if self._saved_state.exists(self.machine_dir(m), domains.get(m))),
        )
