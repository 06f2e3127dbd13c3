"""The check of addresses that users name, directly or through DNS: registries, later webhooks and custom domains.

A check is only worth something for the address that is then connected to. So callers connect to what
`public_addresses` returned and never resolve the name a second time.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

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
_IPV4_SPECIAL = tuple(map(IPv4Network, ("192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/3")))


class AddressRefused(Exception):
    """A name that does not resolve, or leads to an address that is not public. The message is for logs only:

    what it says about the operator's network is not for users.
    """


def is_public(address: str) -> bool:
    """Whether a numeric address is a unicast address of the internet. False for text that is no address.

    Not public: private, loopback, link-local, shared, multicast, reserved and documentation addresses, and IPv6
    addresses that carry an IPv4 address that is not public, in any of the forms that a host may translate.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return parsed.is_global and not any(parsed in network for network in _IPV4_SPECIAL)
    return _is_public_ipv6(parsed)


def _is_public_ipv6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    if any(address in network for network in _IPV4_EMBEDDED):
        return is_public(str(IPv4Address(int(address) & 0xFFFFFFFF)))
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
    """The addresses to connect to, all of them public and none of this host.

    Raises AddressRefused, also where only one of several is not public: such a name is meant to deceive.
    """
    found = addresses_of(host, port)
    if refused := [address for address in found if not is_public(address) or is_own(address)]:
        raise AddressRefused(f"{host} leads to {refused[0]}, which is not a public address")
    return found
