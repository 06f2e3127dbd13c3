"""Validation of ports, networks and domain names, with error messages that say which value to give."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import idna
from rest_framework.serializers import ValidationError

from vmbackend.guest.bootconfig import CONTROL_PORT
from vmbackend.policy import PRIVATE_NETWORKS

_PRIVATE = tuple(IPv4Network(network) for network in PRIVATE_NETWORKS)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_MAX_NAME_LENGTH = 253
NAME_HELP = "Give a name such as api.example.com, or *.example.com for all names below it."


def network(text: str) -> str:
    """Return a network in CIDR notation, or a single address. Raise ValidationError."""
    if "%" in text:
        raise ValidationError("An address with an interface (%) is not a network.")
    try:
        return str(ip_network(text.strip()))
    except ValueError:
        pass
    try:
        wider = ip_network(text.strip(), strict=False)
    except ValueError as exc:
        raise ValidationError("Give a network such as 203.0.113.0/24 or 2001:db8::/32.") from exc
    raise ValidationError(f"The address has host bits set: give {wider}.")


def destination(text: str) -> str:
    """Return a network or domain name for egress. Raise ValidationError."""
    given = text.strip()
    if _is_network(given):
        found = ip_network(network(given))
        if is_private(found):
            raise ValidationError("Private, loopback and link-local networks cannot be reached from a workspace.")
        return str(found)
    return name(given)


def is_private(found: IPv4Network | IPv6Network) -> bool:
    """Return whether all of the network is unreachable. A wider network is accepted, and its private part has no
    effect.
    """
    if isinstance(found, IPv4Network):
        return any(found.subnet_of(private) for private in _PRIVATE)
    return found.is_private or found.is_link_local or found.is_multicast


def name(text: str) -> str:
    """Return a domain name in ASCII (IDNA 2008), lowercase, without its last dot. Raise ValidationError."""
    if "://" in text or "/" in text:
        raise ValidationError(f"Not a domain name. {NAME_HELP}")
    wide, rest = text.startswith("*."), text.removeprefix("*.").removesuffix(".")
    if text == "*" or "*" in rest:
        raise ValidationError(f"A * is allowed only as the first label. {NAME_HELP}")
    ascii_name = _ascii(rest)
    labels = ascii_name.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels) or len(ascii_name) > _MAX_NAME_LENGTH:
        raise ValidationError(f"Not a domain name. {NAME_HELP}")
    if len(labels) < 2 or labels[-1].isdigit() or labels[-1] == "localhost":
        raise ValidationError(f"A name has at least two labels and ends in a public domain. {NAME_HELP}")
    return f"*.{ascii_name}" if wide else ascii_name


def public_port(number: int) -> int:
    """Return a port that may be published. Raise ValidationError."""
    if number == CONTROL_PORT:
        raise ValidationError(f"Port {CONTROL_PORT} is reserved for the platform.")
    return number


def _is_network(text: str) -> bool:
    if "/" in text and "://" not in text:
        return True
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _ascii(text: str) -> str:
    try:
        return idna.encode(text, uts46=True).decode() if not text.isascii() else text.lower()
    except idna.IDNAError as exc:
        raise ValidationError(f"Not a domain name. {NAME_HELP}") from exc
