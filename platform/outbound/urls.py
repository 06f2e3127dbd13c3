"""The one reading of URLs that users name: what it refuses is not connected to, what it returns is not parsed again.

Stricter than browsers: an address in any form but the usual one, and characters that programs read differently, are
refused instead of being rewritten.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal

import idna

from outbound.errors import OutboundError

_MAX_URL = 2048
_DEFAULT_PORTS = {"http": 80, "https": 443}
# RFC 3986 without the fragment. The authority may have other letters, which IDNA then judges.
_URL = re.compile(r"(?P<scheme>[A-Za-z]+)://(?P<authority>[^/?]*)(?P<path>[A-Za-z0-9\-._~:/?@!$&'()*+,;=%\[\]]*)")
_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]+))?")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?|_[a-z0-9_-]{0,61}[a-z0-9]")
# Texts that inet_aton and browsers take for a part of an IPv4 address: decimal, octal, hexadecimal.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a URL: host and path as they are sent, in ASCII. `literal`: the host is an address, not a name."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str
    literal: bool

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def target_of(url: str) -> Target:
    """Return the place that a URL names. Raise OutboundError with a sentence about the URL; its host is not yet
    checked.
    """
    if len(url) > _MAX_URL:
        raise _refusal(f"The URL must have at most {_MAX_URL} characters.")
    if "#" in url:
        raise _refusal("The URL must not have a fragment.")
    found = _URL.fullmatch(url)
    if found is None or _BROKEN_ESCAPE.search(found["path"]):
        raise _refusal("This is not a URL: https://host/path, with other characters as %XX.")
    scheme = found["scheme"].lower()
    if scheme not in {"https", "http"}:
        raise _refusal("The URL must begin with https://.")
    if "@" in found["authority"]:
        raise _refusal("The URL must not have a user name or password.")
    host, port, literal = _place(found["authority"], _DEFAULT_PORTS[scheme])
    path = found["path"]
    return Target(
        "https" if scheme == "https" else "http", host, port, path if path.startswith("/") else f"/{path}", literal
    )


def place_of(text: str) -> tuple[str, int]:
    """Return host and port of a setting's `host:port`. Raise OutboundError."""
    host, port, _ = _place(text, 0)
    if port == 0:
        raise _refusal("The port is missing.")
    return host, port


def _place(authority: str, default_port: int) -> tuple[str, int, bool]:
    if not authority or authority.startswith(":"):
        raise _refusal("The URL must have a host.")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise _refusal("The URL's host is not valid.")
    port = default_port
    if found["port"] is not None:
        port = int(found["port"]) if len(found["port"]) <= 5 else 0
        if not 0 < port < 65536 or found["port"] != str(port):
            raise _refusal("The URL's port must be a number from 1 to 65535.")
    host = _ipv6(found["ipv6"]) if found["ipv6"] else _ipv4(found["name"])
    return (host, port, True) if host else (_name(found["name"]), port, False)


def _ipv6(text: str) -> str:
    try:
        return str(IPv6Address(text))
    except ValueError:
        raise _refusal("The URL's address is not valid.") from None


def _ipv4(text: str) -> str:
    """Return the text, if it is an address in its usual form; "" for anything else."""
    try:
        return text if text.isascii() and str(IPv4Address(text)) == text else ""
    except ValueError:
        return ""


def _name(text: str) -> str:
    """Return the name in ASCII, with at most 253 characters."""
    try:
        # Strict: what a mapping would turn into other characters (full-width and enclosed ones) is refused.
        normal = unicodedata.normalize("NFC", text.lower())
        ascii_name = normal if text.isascii() else idna.encode(normal, strict=True).decode()
    except (idna.IDNAError, UnicodeError):
        raise _refusal("The URL's host is not valid.") from None
    labels = ascii_name.split(".")
    if len(ascii_name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _refusal("The URL's host is not valid.")
    if _NUMBER.fullmatch(labels[-1]):
        raise _refusal("The URL's address must have its usual form.")
    return ascii_name


def _refusal(sentence: str) -> OutboundError:
    return OutboundError("refused_target", sentence)


def server_place(value: str) -> tuple[str, int]:
    """Return address and port of a name server: `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1` or `[2001:db8::1]:5353`.

    Raise ValueError.
    """
    host, separator, port = value.rpartition(":")
    if not separator or (":" in host and not value.startswith("[")):
        host, port = value, "53"
    number = int(port)
    if not 0 < number < 65536:
        raise ValueError(f"{port} is not a port.")
    return str(ip_address(host.removeprefix("[").removesuffix("]"))), number
