"""Attaching machines to the host's network and detaching them, according to their records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from vmbackend.errors import BackendError, MachineNotFound
from vmbackend.libvirt.inventory import HostInventory
from vmbackend.libvirt.machine_port import MachinePort
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.network_maintainer import port_for
from vmbackend.libvirt.record import Record
from vmbackend.peers import Peer
from vmbackend.policy import NetworkPolicy


class NetworkAttachment:
    """`disabled`: libvirt's mock hypervisor has no network; only records are written then."""

    def __init__(self, network: Network, inventory: HostInventory, *, disabled: bool) -> None:
        self._network = network
        self._inventory = inventory
        self._disabled = disabled

    def port_of(self, record: Record) -> MachinePort:
        """Return the network of a machine as it is recorded."""
        return MachinePort(partial(self.attach, record, record), partial(self._connect, record.ip))

    def attach(self, record: Record, former: Record) -> None:
        """Apply the machine's network rules. Repeated before each start, as an administrator may have flushed them."""
        if self._disabled:
            return
        try:
            self._network.attach(port_for(record), port_for(former))
        except BackendError:
            self._network.install(port_for(known) for known in self._inventory.records())

    def _connect(self, ip: str) -> None:
        if not self._disabled:
            self._network.connect(ip)

    def add_neighbour(self, record: Record | None) -> None:
        """Add the neighbour entry, before the CPUs of a paused machine run."""
        if record is not None and not self._disabled:
            self._network.add_neighbour(record.ip)

    def remove_neighbour(self, record: Record | None) -> None:
        """Remove the neighbour entry, after the CPUs of a machine were stopped or its process has ended."""
        if record is not None and not self._disabled:
            self._network.remove_neighbour(record.ip)

    def change_policy(self, machine_id: str, policy: NetworkPolicy) -> None:
        """Do what `Driver.set_network` does."""
        files = self._inventory.machine_dir(machine_id)
        # In this order: a machine that is being changed delays no policy of another one.
        with files.changing(), self._network.lock:
            record = files.read_record()
            if record is None:
                raise MachineNotFound("The machine's files are not on this host.")
            changed = replace(record, network=policy, generation=record.generation_for(policy))
            # The record first: a concurrent rebuild of the firewall must apply the new policy.
            files.write_record(changed)
            self.attach(changed, record)

    def is_anothers(self, record: Record | None) -> bool:
        """Return whether another machine is attached under the address of this record."""
        if self._disabled or record is None:
            return False
        return any(ip == record.ip and key != record.id for key, ip in self._network.attached_addresses().items())

    def apply_peers(self, peers: Collection[Peer]) -> None:
        """Do what `Driver.apply_peers` does."""
        if not self._disabled:
            self._network.apply_peers(peers)

    def detach(self, machine_id: str, record: Record | None) -> None:
        """Remove the machine from the network. The id of an orphaned tap is its own name."""
        if self._disabled:
            return
        ip = record.ip if record else self._network.attached_addresses().get(machine_id)
        tap = self._network.tap_for(ip) if ip else machine_id
        if ip:
            self._network.detach(ip, machine_id)
        self._network.remove_tap(tap)
