"""Addresses and routes of this machine, and the choice of those of an instance's machines: a network that no route
overlaps.
"""

from __future__ import annotations

import json
import subprocess
from ipaddress import IPv4Network
from typing import Any

SUBNETS = IPv4Network("10.128.0.0/9")
SUBNET_PREFIX = 20


def choose_subnet(seed: int) -> IPv4Network | None:
    """Return the first free subnet, counted from the one that `seed` selects; None if each overlaps a route."""
    routed = routed_networks()
    count = 2 ** (SUBNET_PREFIX - SUBNETS.prefixlen)
    size = 2 ** (32 - SUBNET_PREFIX)
    for step in range(count):
        subnet = IPv4Network((SUBNETS.network_address + ((seed + step) % count) * size, SUBNET_PREFIX))
        if not any(subnet.overlaps(network) for network in routed):
            return subnet
    return None


def routed_networks() -> list[IPv4Network]:
    """Return the networks of this host's routes; empty if they cannot be listed."""
    try:
        destinations = [row["dst"] for row in _shown("route", "show", "table", "all")]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return []
    networks = []
    for destination in destinations:
        try:
            network = IPv4Network(destination, strict=False)
        except ValueError:
            continue  # "default" and route types
        # A route wider than SUBNETS (a VPN of all of 10/8) would leave no choice at all; ours is more specific.
        if network.prefixlen >= SUBNETS.prefixlen:
            networks.append(network)
    return networks


def own_addresses() -> list[str]:
    """Return the IPv4 addresses of this machine; empty if they cannot be listed."""
    try:
        return [each["local"] for link in _shown("address", "show") for each in link["addr_info"]]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return []


def _shown(*what: str) -> list[dict[str, Any]]:
    done = subprocess.run(["ip", "-j", "-4", *what], capture_output=True, check=True, timeout=10)
    found: list[dict[str, Any]] = json.loads(done.stdout or b"[]")
    return found
