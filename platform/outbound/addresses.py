"""The check of addresses that users name, directly or through DNS: registries, later webhooks and custom domains.

A check is only worth something for the address that is then connected to. So callers connect to what
`public_addresses` returned and never resolve the name a second time.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network

# Unicast of the internet. Everything else of IPv6 is local, multicast, or carries an IPv4 address.
_IPV6_UNICAST = IPv6Network("2000::/3")
_IPV6_SPECIAL = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo among them, which carries an IPv4 address
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which carries an IPv4 address
            "3fff::/20",  # documentation
        ),
    )
)
# Translated to the IPv4 address in the last 32 bits, which is what counts: hosts without IPv4 reach all of it this way.
_IPV4_EMBEDDED = (IPv6Network("64:ff9b::/96"), IPv6Network("::ffff:0:0/96"))
# The low half of an IPv6 address by ISATAP: its network may hand the packet to the IPv4 address in the last 32 bits.
_ISATAP = (0x00005EFE, 0x02005EFE)
_IPV4_SPECIAL = tuple(
    map(
        IPv4Network,
        (
            "168.63.129.16/32",  # the metadata and name server of machines in Azure
            "192.0.0.0/24",
            "192.88.99.0/24",
            "224.0.0.0/3",
        ),
    )
)


class AddressRefused(Exception):
    """A name that does not resolve, or leads to an address that is not public. The message is for logs only:

    what it says about the operator's network is not for users.
    """


def is_public(address: str, refused: Iterable[Network] = ()) -> bool:
    """Whether a numeric address is a unicast address of the internet, outside of the networks `refused`.

    Not public: text that is no address; private, loopback, link-local, shared, multicast, reserved and documentation
    addresses; and IPv6 addresses that carry an IPv4 address that is not public or is in `refused`, in any of the forms
    that a host may translate.
    """
    forms = _forms(address)
    if any(form in network for form in forms for network in refused):
        return False
    return bool(forms) and all(_is_unicast(form) for form in forms)


def _forms(address: str) -> list[IPv4Address | IPv6Address]:
    """The address, and the IPv4 address that packets to it may end at. Empty for text that is no address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return []
    carried = _carried_ipv4(parsed) if isinstance(parsed, IPv6Address) else None
    return [parsed] if carried is None else [parsed, carried]


def _carried_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Of the forms that can be public. Those of `_IPV6_SPECIAL` and outside of 2000::/3 are refused as they are."""
    number = int(address)
    if any(address in network for network in _IPV4_EMBEDDED) or (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(number & 0xFFFFFFFF)
    return None


def _is_unicast(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in network for network in _IPV4_SPECIAL)
    if address.scope_id is not None:
        return False
    if any(address in network for network in _IPV4_EMBEDDED):
        return True
    return address in _IPV6_UNICAST and not any(address in network for network in _IPV6_SPECIAL)


def is_own(address: str) -> bool:
    """Whether a numeric address is one of this host's: what listens there may be closed to the internet."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
        return True
    return False


def addresses_of(host: str, port: int) -> list[str]:
    """The numeric addresses of a name, or the address itself, unchecked. Raises AddressRefused if there is none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"{host} does not resolve") from error
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def public_addresses(host: str, port: int) -> list[str]:
    """The addresses to connect to, all of them public and none of this host. Raises AddressRefused."""
    found = addresses_of(host, port)
    require_public(host, found)
    return found


def require_public(host: str, found: Iterable[str], refused: Iterable[Network] = ()) -> None:
    """Raises AddressRefused unless all addresses of a host are public, outside of `refused` and none of this host's.

    Also where only one of several is not: such a name is meant to deceive.
    """
    networks = tuple(refused)
    for address in found:
        if not is_public(address, networks) or any(is_own(str(form)) for form in _forms(address)):
            raise AddressRefused(f"{host} leads to {address}, which is not a public address")
