"""The place where a proxied request leads to: by a header, by the query, or by the first part of the path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from urllib.parse import unquote_plus

from common.errors import ValidationError

Headers = Sequence[tuple[bytes, bytes]]
# With one more word in the middle, as existing clients send them.
TARGET_HEADER = re.compile(rb"x-(?:[a-z0-9]+-)?proxy-target", re.IGNORECASE)
TARGET_FIELD = re.compile(r"proxy_target|x_[a-z0-9]+_target", re.IGNORECASE)
TOKEN_FIELD = "token"  # noqa: S105  # the name of a field
WANTED = "Give [host:]port, with a host of the machine's loopback: 127.0.0.0/8, localhost or [::1]."
_TARGET = re.compile(r"(?:(?P<host>[0-9.]{7,15}|localhost|\[::1\]):)?(?P<port>[0-9]{1,5})", re.IGNORECASE)
_PATH_PORT = re.compile(rb"/([0-9]{1,5})(/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LoopbackPort:
    """A port of the guest's loopback. `addresses` are tried one after another."""

    host: str
    port: int

    @property
    def addresses(self) -> tuple[str, ...]:
        if self.host == "localhost":
            return "127.0.0.1", "::1"
        return (self.host.strip("[]"),)

    @property
    def authority(self) -> bytes:
        """Return what the server reads as Host."""
        return f"{self.host}:{self.port}".encode()


@dataclass(frozen=True, slots=True)
class Destination:
    """The target of a request, and the path and query with which it gets there, as they were sent."""

    target: LoopbackPort
    path: bytes


def find_destination(headers: Headers, path: bytes, query: bytes, *, token: str, control_port: int) -> Destination:
    """Return where a request leads; `path` is what follows `/proxy`, with its slash. Raise ValidationError."""
    named = [value.decode("latin-1").strip() for name, value in headers if TARGET_HEADER.fullmatch(name)]
    fields = [(field, *_decoded(field)) for field in query.split(b"&") if field]
    named += [value for _, name, value in fields if TARGET_FIELD.fullmatch(name)]
    if len(set(named)) > 1:
        raise _refused("The request names several targets.")
    if not named:
        named, path = _path_target(path)
    kept = b"&".join(_passed(fields, token))
    return Destination(_read_target(named[0], control_port), path + b"?" * bool(kept) + kept)


def _passed(fields: Iterable[tuple[bytes, str, str]], token: str) -> list[bytes]:
    """Return the fields of a query but for the target, and the token in whichever field it is."""
    return [
        field
        for field, name, value in fields
        if not TARGET_FIELD.fullmatch(name) and not (token and (token in value or token in name))
    ]


def _decoded(field: bytes) -> tuple[str, str]:
    name, _, value = field.decode("latin-1").partition("=")
    return unquote_plus(name), unquote_plus(value)


def _path_target(path: bytes) -> tuple[list[str], bytes]:
    """Return the port that a path begins with, and the rest. Raise ValidationError."""
    found = _PATH_PORT.fullmatch(path)
    if found is None:
        raise _refused(f"The request names no target. {WANTED}")
    return [found[1].decode()], found[2] or b"/"


def _read_target(text: str, control_port: int) -> LoopbackPort:
    found = _TARGET.fullmatch(text)
    if found is None:
        raise _refused(WANTED)
    host, port = (found["host"] or "localhost").lower(), int(found["port"])
    if host[0].isdigit() and not _is_loopback(host):
        raise _refused(WANTED)
    if not 0 < port < 1 << 16 or port == control_port:
        raise _refused("The port is none of 1 to 65535, or that of the platform's own server.")
    return LoopbackPort(host, port)


def _is_loopback(host: str) -> bool:
    try:
        return IPv4Address(host).is_loopback
    except AddressValueError:
        return False


def _refused(sentence: str) -> ValidationError:
    return ValidationError(details={"target": [sentence]})
