"""User ids of the unprivileged processes that serve machines.

Every machine's hypervisor process has a uid, and a gid of the same number, that no other process and no account of the
host has. The range of an instance starts at one setting and has the size of its subnet: a machine's uid is the first
one plus the position of its address in the subnet. So it is as durable and as free of collisions as the address, which
rows and firewall rely on, too, and needs no state of its own.

The positions of the subnet's own address and of the gateway are never a machine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

# Above what systemd gives to containers (up to 0x6FFFFFFF) and below 2^31, where some programs take ids for negative.
_LOWEST = 0x70000000


def default_first_uid(subnet: IPv4Network) -> int:
    """Return the first uid of an instance with this subnet. Differs for all networks of 10.0.0.0/8.

    Instances on one host have different subnets, as they are routed.
    """
    return _LOWEST + (int(subnet.network_address) & 0xFFFFFF)


@dataclass(frozen=True, slots=True)
class UidRange:
    """The uids, and gids of the same numbers, of one instance."""

    first: int
    subnet: IPv4Network

    def machine(self, ip: str) -> int:
        """Return the uid of the machine with this address."""
        return self.first + int(IPv4Address(ip)) - int(self.subnet.network_address)

    @property
    def machines(self) -> range:
        """Return the uids that machines may have."""
        return range(self.first + 2, self.first + self.subnet.num_addresses - 1)
