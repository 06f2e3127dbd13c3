"""What a machine may reach and what may reach it: the part of the driver contract that is about its network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network, ip_network
from typing import Any, Self

# What no machine reaches, whatever its policy says.
PRIVATE_NETWORKS = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
)


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """A machine's whole policy; it is always set as a whole.

    Whatever it says, a machine never reaches the host, the control plane, another machine or a private network.

    `allow_internet`: every public address, and names of every domain. Without it only what `egress` lists: networks
    (`203.0.113.0/24`; IPv6 ones are without effect, as machines have no IPv6), names (`example.com`: that name alone)
    and names below a domain (`*.example.com`). A name's addresses are let through from its answer on for as long as
    the machine may use that answer; other names do not resolve.
    `egress_ports`: the only ports of TCP and UDP that it reaches out there; empty: all, and other protocols too.
    `ingress_ports`: the only ports of its own that the host and the edge reach, beside SSH and the control port;
    empty: all.
    """

    allow_internet: bool = True
    egress: tuple[str, ...] = ()
    egress_ports: tuple[int, ...] = ()
    ingress_ports: tuple[int, ...] = ()

    @property
    def networks(self) -> tuple[IPv4Network, ...]:
        """The IPv4 networks of `egress`."""
        found = (ip_network(entry) for entry in self.egress if "/" in entry)
        return tuple(network for network in found if isinstance(network, IPv4Network))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of `egress` that matter: with the internet open, none."""
        return () if self.allow_internet else tuple(entry for entry in self.egress if "/" not in entry)

    @property
    def reaches_out(self) -> bool:
        """Whether there is any way out."""
        return self.allow_internet or bool(self.egress)

    def as_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Raises TypeError for fields that are none of a policy."""
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in raw.items()}
        return cls(**fields)


OPEN = NetworkPolicy()


class Networking(ABC):
    """What a driver does for its machines' network."""

    @abstractmethod
    def set_network(self, machine_id: str, policy: NetworkPolicy) -> None:
        """Give a machine another network policy, whatever state it is in, at once and for connections that are open.

        Either all of it applies or, on failure, what did before or nothing is let through. Raises MachineNotFound,
        BackendUnavailable.
        """

    @abstractmethod
    def count_connections(self, machine_id: str) -> int:
        """How many TCP connections this host holds open to ports of the machine, SSH and the control port aside.

        The edge's requests and WebSockets are among them. 0 for a machine that is not there. Raises BackendUnavailable.
        """

    @abstractmethod
    def close_connections(self, machine_id: str, ports: Collection[int]) -> None:
        """End this host's connections to these ports of the machine; none there succeeds. Raises BackendUnavailable."""
