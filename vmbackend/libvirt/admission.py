"""Machines come into the network and leave it, as their records say."""

from __future__ import annotations

from dataclasses import replace

from vmbackend.errors import BackendError, MachineNotFound
from vmbackend.libvirt.names import port_of
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.record import Record
from vmbackend.libvirt.stock import Stock
from vmbackend.policy import NetworkPolicy


class Admission:
    """Nothing happens where there is no network (`without`: libvirt's mock hypervisor), but in the records."""

    def __init__(self, network: Network, stock: Stock, *, without: bool) -> None:
        self._network = network
        self._stock = stock
        self._without = without

    def admit(self, record: Record, former: Record) -> None:
        """Before each start again: rules that somebody flushed must not leave a guest unguarded."""
        if self._without:
            return
        try:
            self._network.admit(port_of(record), port_of(former))
        except BackendError:
            self._network.install(port_of(known) for known in self._stock.records())

    def change(self, machine_id: str, policy: NetworkPolicy) -> None:
        """As `Driver.set_network`."""
        with self._network.lock:
            files = self._stock.files(machine_id)
            record = files.read_record()
            if record is None:
                raise MachineNotFound("The machine's files are not on this host.")
            changed = replace(record, network=policy, generation=record.generation_for(policy))
            # The record first: a firewall that is rebuilt meanwhile must already come out as it shall be.
            files.write_record(changed)
            self.admit(changed, record)

    def leave(self, machine_id: str, record: Record | None) -> None:
        """Nothing of the machine is left in the network. A tap of nobody goes by its own name."""
        if self._without:
            return
        ip = record.ip if record else self._network.admitted().get(machine_id)
        tap = self._network.tap_for(ip) if ip else machine_id
        if ip:
            self._network.revoke(ip, machine_id)
        self._network.remove_tap(tap)
