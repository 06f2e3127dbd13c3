"""Peers: the other hosts of the platform, as a driver is told of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations

_EVERY_ADDRESS = IPv4Network("0.0.0.0/8")


@dataclass(frozen=True, slots=True, order=True)
class Peer:
    """Another host: the address at which it is reached, and the subnet of its machines."""

    address: IPv4Address
    subnet: IPv4Network


def unusable(address: IPv4Address) -> str:
    """Return why an address cannot be that of a host which others reach; empty if it can."""
    if address.is_loopback or address.is_link_local or address in _EVERY_ADDRESS:
        return f"{address} is reached from its own machine or link only."
    if address.is_multicast or address.is_reserved:
        return f"{address} is not the address of one machine."
    return ""


def refusal(peers: Collection[Peer], own: Iterable[IPv4Network] = ()) -> str:
    """Return why one of the peers is refused beside the others and the subnets of this host; empty if none is.

    A packet with an address of machines would otherwise count as one of a host, or lead to two hosts.
    """
    subnets = [*own, *(peer.subnet for peer in peers)]
    for peer in peers:
        if reason := unusable(peer.address):
            return reason
        if any(peer.address in subnet for subnet in subnets):
            return f"The address {peer.address} of a host is one of machines."
    for first, second in combinations(subnets, 2):
        if first.overlaps(second):
            return f"The subnets {first} and {second} of two hosts overlap."
    return ""
