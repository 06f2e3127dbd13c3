"""The policy of an instance: which places that users name may be connected to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from outbound.addresses import is_public, is_within
from outbound.errors import OutboundError
from outbound.urls import Target, place_of, target_of

# Names that lead to no public address wherever they are asked for (RFC 6761, 6762, 7686, 8375, 9476; `internal`)
_LOCAL_NAMES = ("localhost", "local", "internal", "home.arpa", "onion", "alt", "invalid")


@dataclass(frozen=True, slots=True)
class Targets:
    """`listed`: host and port of places that may be plain http and on any address. `refused`: networks that nothing

    but a listed place may be in, beside all that is not public.
    """

    listed: frozenset[tuple[str, int]] = frozenset()
    refused: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, listed: Iterable[str] = (), refused: Iterable[str] = ()) -> Targets:
        """Return targets from `host:port` and networks as settings have them. Raise OutboundError, ValueError."""
        return cls(frozenset(map(place_of, listed)), tuple(map(ip_network, refused)))

    def is_listed(self, target: Target) -> bool:
        """Return whether the target is a listed place."""
        return (target.host, target.port) in self.listed


def required_target(url: str, policy: Targets) -> Target:
    """Return the place that a URL names, if the policy permits the URL itself; a name's addresses are not looked up.

    Raise OutboundError (refused_target).
    """
    target = target_of(url)
    if policy.is_listed(target):
        return target
    if target.scheme != "https":
        raise OutboundError("refused_target", "The URL must begin with https://.")
    if target.literal:
        if not is_public(target.host) or is_within(target.host, policy.refused):
            raise OutboundError("refused_target")
    elif "." not in target.host or any(f".{target.host}".endswith(f".{name}") for name in _LOCAL_NAMES):
        raise OutboundError("refused_target")
    return target
