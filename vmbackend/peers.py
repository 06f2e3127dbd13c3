"""Peers: the other hosts of the platform, as a driver is told of them."""

from __future__ import annotations

from collections.abc import Iterable
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


def refusal(peer: Peer, subnets: Iterable[IPv4Network]) -> str:
    """Return why a peer is refused beside these subnets of other hosts' machines; empty if it is not.

    A packet with an address of machines would otherwise count as one of a host, or lead to two hosts.
    """
    if reason := unusable(peer.address):
        return reason
    for subnet in (peer.subnet, *subnets):
        if peer.address in subnet:
            return f"The address {peer.address} lies in {subnet}, whose addresses are those of machines."
    for subnet in subnets:
        if peer.subnet.overlaps(subnet):
            return f"The subnet {peer.subnet} of {peer.address} overlaps {subnet}."
    return ""
