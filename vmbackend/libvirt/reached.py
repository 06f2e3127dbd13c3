"""The hosts that reach machines, and this host's connections to them: a part of `vmbackend.policy.Networking`."""

from __future__ import annotations

from collections.abc import Collection

from vmbackend.libvirt import sockets
from vmbackend.libvirt.attachment import NetworkAttachment
from vmbackend.libvirt.inventory import HostInventory
from vmbackend.peers import Peer
from vmbackend.policy import Networking


class ReachedMachines(Networking):
    """These methods of `Networking` for a driver that has these parts."""

    _inventory: HostInventory
    _attachment: NetworkAttachment

    def count_connections(self, machine_id: str) -> int:
        record = self._inventory.record(machine_id)
        return sockets.count_connections(record.ip) if record else 0

    def close_connections(self, machine_id: str, ports: Collection[int]) -> None:
        record = self._inventory.record(machine_id)
        if record:
            sockets.close_connections(record.ip, ports)

    def apply_peers(self, peers: Collection[Peer]) -> None:
        self._attachment.apply_peers(peers)
