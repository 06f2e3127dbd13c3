"""Network policies: the part of the driver contract about what a machine may reach and what may reach it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network, ip_network
from typing import Any, Self

from vmbackend.peers import Peer

# No machine reaches these, regardless of its policy.
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
    """A machine's network policy; always replaced as a whole.

    No policy lets a machine reach the host, the control plane, another machine or a private network.

    `allow_internet`: all public addresses, and names of every domain. Without it only what `egress` lists: networks
    (`203.0.113.0/24`; IPv6 ones have no effect, as machines have no IPv6), names (`example.com`: that name only) and
    names below a domain (`*.example.com`). A name's addresses are allowed from its DNS answer on for the answer's time
    to live; other names do not resolve.
    `egress_ports`: the only remote TCP and UDP ports allowed; empty: all ports and all protocols.
    `ingress_ports`: the only ports of the machine that hosts and the edge reach, besides SSH and the control port;
    empty: all.
    """

    allow_internet: bool = True
    egress: tuple[str, ...] = ()
    egress_ports: tuple[int, ...] = ()
    ingress_ports: tuple[int, ...] = ()

    @property
    def networks(self) -> tuple[IPv4Network, ...]:
        """Return the IPv4 networks of `egress`."""
        found = (ip_network(entry) for entry in self.egress if "/" in entry)
        return tuple(network for network in found if isinstance(network, IPv4Network))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of `egress`; none with `allow_internet`, which includes all."""
        return () if self.allow_internet else tuple(entry for entry in self.egress if "/" not in entry)

    @property
    def reaches_out(self) -> bool:
        """Return whether any outgoing connection is allowed."""
        return self.allow_internet or bool(self.egress)

    def as_json(self) -> dict[str, Any]:
        """Return the form that `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Raise TypeError for unknown fields."""
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in raw.items()}
        return cls(**fields)


OPEN = NetworkPolicy()


class Networking(ABC):
    """The network operations of a driver."""

    @abstractmethod
    def set_network(self, machine_id: str, policy: NetworkPolicy) -> None:
        """Replace a machine's network policy, in any state, at once and also for open connections.

        On failure either the former policy still applies or no traffic is allowed. Raise MachineNotFound,
        BackendUnavailable.
        """

    @abstractmethod
    def count_connections(self, machine_id: str) -> int:
        """Return how many TCP connections from this host to the machine are open, except to SSH and the control port.

        Requests and WebSockets of the edge are among them. 0 for an unknown machine. Raise BackendUnavailable.
        """

    @abstractmethod
    def close_connections(self, machine_id: str, ports: Collection[int]) -> None:
        """Close this host's connections to these ports of the machine. Idempotent. Raise BackendUnavailable."""

    @abstractmethod
    def apply_peers(self, peers: Collection[Peer]) -> None:
        """Let exactly these hosts reach the machines as this host does, and this host reach theirs. Idempotent.

        Their connections are judged by `ingress_ports`. A machine opens nothing towards them and reaches no machine of
        theirs. What was applied last holds until the next call, also beyond `close` and a death of the process. A peer
        that no network of this host leads to is logged and tried again within a minute. Raise BackendUnavailable, and
        apply none, if one has an address that is no host's, or its subnet overlaps another one (`peers.refusal`).
        """
