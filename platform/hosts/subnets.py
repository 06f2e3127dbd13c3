"""The choice of the network of a new host's machines, by the control plane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network

# As supervise/subnets.py chooses that of the first machine.
SUBNETS = IPv4Network("10.128.0.0/9")
PREFIX = 20


def free_subnet(taken: Iterable[IPv4Network]) -> IPv4Network | None:
    """Return the first /20 that overlaps none of these; None if all do."""
    known = [network for network in taken if network.overlaps(SUBNETS)]
    return next((one for one in _candidates() if not any(one.overlaps(network) for network in known)), None)


def _candidates() -> Iterator[IPv4Network]:
    return SUBNETS.subnets(new_prefix=PREFIX)
