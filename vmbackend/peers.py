"""Peers: the other hosts of the platform, as a driver is told of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

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


def refusal(peer: Peer, others: Iterable[Peer] = (), own: IPv4Network | None = None) -> str:
    """Return why a peer is refused beside others and the subnet of this host; empty if it is not.

    A packet with an address of machines would otherwise count as one of a host, or lead to two hosts.
    """
    if reason := unusable(peer.address):
        return reason
    hosts = [*((other.address, other.subnet) for other in others), *([(None, own)] if own else [])]
    for address, subnet in hosts:
        if peer.subnet.overlaps(subnet):
            return f"The subnets {peer.subnet} and {subnet} of two hosts overlap."
        if peer.address in subnet or (address is not None and address in peer.subnet):
            return f"The address {peer.address if peer.address in subnet else address} of a host is one of machines."
    if peer.address in peer.subnet:
        return f"The address {peer.address} of a host is one of machines."
    return ""


def first_refusal(peers: Collection[Peer], own: IPv4Network | None = None) -> str:
    """Return why one of the peers is refused beside those before it; empty if none is."""
    known = list(peers)
    reasons = (refusal(peer, known[:number], own) for number, peer in enumerate(known))
    return next(filter(None, reasons), "")
