"""The check of addresses that users name, directly or through DNS: registries, later webhooks and custom domains.

A check is only worth something for the address that is then connected to. So callers connect to what
`public_addresses` returned and never resolve the name a second time.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
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
# Constants of rtnetlink(7).
_RTM_NEWROUTE, _RTM_GETROUTE, _NLM_F_REQUEST, _RTA_DST = 24, 26, 1, 1
_ENDS_HERE = (2, 3, 4)  # RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST


class AddressRefused(Exception):
    """A name that does not resolve, or leads to an address that is not public. The message is for logs only:

    what it says about the operator's network is not for users.
    """


def is_public(address: str) -> bool:
    """Return whether a numeric address is a unicast address of the internet. False for text that is no address.

    Not public: private, loopback, link-local, shared, multicast, reserved and documentation addresses, and IPv6
    addresses that carry an IPv4 address that is not public, in any of the forms that a host may translate.
    """
    forms = _forms(address)
    return bool(forms) and all(_is_unicast(form) for form in forms)


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Return whether a numeric address, or an IPv4 address that it carries, is in one of the networks."""
    return any(form in network for form in _forms(address) for network in networks)


def _forms(address: str) -> list[IPv4Address | IPv6Address]:
    """Return the address, and the IPv4 address that packets to it may end at. Empty for text that is no address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return []
    carried = _carried_ipv4(parsed) if isinstance(parsed, IPv6Address) else None
    return [parsed] if carried is None else [parsed, carried]


def _carried_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an address carries in a form that can be public.

    Addresses of `_IPV6_SPECIAL` and outside of 2000::/3 are refused as they are.
    """
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
    """Return whether packets to a numeric address end on this host: what listens there may be closed to the internet.

    The kernel's routes are asked each time (some 25 us), so every interface counts, and one that was added just now.
    Binding a socket to the address would not tell: with `ip_nonlocal_bind` that works for all of them. If the kernel
    cannot be asked (no descriptor is left), the address counts as this host's.
    """
    try:
        return _route_type(ip_address(address)) in _ENDS_HERE
    except OSError:
        return True


def _route_type(address: IPv4Address | IPv6Address) -> int:
    """Return the type of the kernel's route to an address (rtnetlink(7)); 0 if it has none. Raise OSError."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    destination = struct.pack("=HH", 4 + len(address.packed), _RTA_DST) + address.packed
    route = struct.pack("=8BI", family, address.max_prefixlen, *bytes(6), 0) + destination
    header = struct.pack("=IHHII", 16 + len(route), _RTM_GETROUTE, _NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(header + route)
        answer = kernel.recv(4096)
    return answer[23] if struct.unpack_from("=H", answer, 4)[0] == _RTM_NEWROUTE else 0


def addresses_of(host: str, port: int) -> list[str]:
    """Return the numeric addresses of a name, or the address itself, unchecked. Raise AddressRefused if there is
    none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"{host} does not resolve") from error
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def public_addresses(host: str, port: int, refused: Iterable[Network] = ()) -> list[str]:
    """Return the addresses to connect to, all of them as `require_public` wants them. Raise AddressRefused."""
    found = addresses_of(host, port)
    require_public(host, found, refused)
    return found


def require_public(host: str, found: Iterable[str], refused: Iterable[Network] = ()) -> None:
    """Raise AddressRefused unless all addresses of a host are public, outside of `refused` and none of this host's.

    Also if only one of several is not: such a name is meant to deceive.
    """
    networks = tuple(refused)
    for address in found:
        public = is_public(address) and not is_within(address, networks)
        if not public or any(is_own(str(form)) for form in _forms(address)):
            raise AddressRefused(f"{host} leads to {address}, which is not a public address")
