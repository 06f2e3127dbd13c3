"""Requests to URLs that users name (webhooks, hooks of the assistant, push endpoints), and to those that a CA names.

Each request resolves the name once, requires that all of its addresses are public, and connects to one of them under
the name's own TLS. It has a connection of its own, follows no redirect, uses no proxy of the environment, and ends
within its deadline whatever the receiver does.

httpcore instead of httpx, whose part it is: httpx parses the URL once more, after the check, and unpacks compressed
answers.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import httpcore

from outbound.addresses import AddressRefused, require_public
from outbound.connection import PlainStream, TlsStream, Wire, open_wire, seconds_left
from outbound.errors import OutboundError
from outbound.names import NameFailed, dns_addresses, listed_addresses
from outbound.targets import Targets, required_target
from outbound.urls import Target

__all__ = ["Answer", "OutboundError", "Targets", "post", "require_public_url", "send_request"]

log = logging.getLogger(__name__)

MAX_BODY: Final = 64 << 10
_MAX_HEAD: Final = 16 << 10
_MAX_PIECES: Final = 1024  # of a body: chunks, each of which costs as much as a large one
_NAME_SECONDS = 5.0
_REGISTRATION_SECONDS = 1.0
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\x20-\x7e]*")
_UNREADABLE = re.compile(rb"[^\x20-\x7e]")
# Set here, or with a meaning for the connection.
_RESERVED = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "accept-encoding", "expect", "upgrade"),
        *("te", "trailer", "keep-alive", "proxy-authorization", "proxy-connection"),
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a receiver. Names of headers are lower case; values are printable ASCII, other bytes as `\\xNN`.

    `body`: as it was sent, at most 64 KiB of it; compressed if the receiver compressed although it was asked not to.
    `truncated`: there was more, or the deadline passed or the connection ended before the end of the body.
    """

    status: int  # 200 to 599
    headers: Mapping[str, str]
    body: bytes
    truncated: bool


def require_public_url(url: str, policy: Targets) -> None:
    """Require a URL that may be registered. Raise OutboundError (refused_target) with a sentence for the user.

    Looks the name up for a second at most, so it is to be called outside of transactions. A name that has no address or
    no answer yet is accepted, as each request checks it again.
    """
    target = required_target(url, policy)
    try:
        _checked_addresses(target, policy, time.monotonic() + _REGISTRATION_SECONDS)
    except OutboundError as error:
        if error.kind == "refused_target":
            raise


def post(url: str, *, body: bytes, headers: Mapping[str, str], deadline_seconds: float = 15, policy: Targets) -> Answer:
    """Send `body` to the URL. Any status from 200 to 599 is an Answer, redirects included; nothing is sent twice.

    `deadline_seconds` bounds all of it: name, connection, TLS, request, answer. Raise OutboundError (every kind), and
    ValueError for headers that are no headers or are set here. No connection remains.
    """
    return send_request("POST", url, body=body, headers=headers, deadline_seconds=deadline_seconds, policy=policy)


def send_request(
    method: Literal["GET", "HEAD", "POST"],
    url: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str],
    deadline_seconds: float = 15,
    policy: Targets,
    trust: ssl.SSLContext | None = None,
) -> Answer:
    """Send a request as `post` does, by another method. `trust`: for TLS instead of `connection.tls_context`."""
    until = time.monotonic() + deadline_seconds
    target = required_target(url, policy)
    request = _request(method, target, body, headers)
    wire = open_wire(_checked_addresses(target, policy, until), target.port, until)
    complete = False
    try:
        answer = _exchange(wire, target, request, trust)
        complete = not answer.truncated
        return answer
    finally:
        wire.close_now(reset=not complete)


def _checked_addresses(target: Target, policy: Targets, until: float) -> list[str]:
    """Return the addresses to connect to. Raise OutboundError (refused_target, name, timeout)."""
    seconds = min(seconds_left(until), _NAME_SECONDS)
    listed = policy.is_listed(target)
    try:
        if target.literal:
            found = [target.host]
        else:
            found = (listed_addresses if listed else dns_addresses)(target.host, seconds)
        if not listed:
            require_public(target.host, found, policy.refused)
    except AddressRefused as error:
        log.warning("refused a URL: %s", error)
        raise OutboundError("refused_target") from error
    except NameFailed as error:
        raise OutboundError("name") from error
    return found


def _request(method: str, target: Target, body: bytes, headers: Mapping[str, str]) -> httpcore.Request:
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _RESERVED:
            raise ValueError(f"not a header of a request: {name!r}")
    own = {
        "Host": target.host_header,
        **({"Content-Length": str(len(body))} if method == "POST" else {}),
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    return httpcore.Request(method, url, headers=[*own.items(), *headers.items()], content=body)


def _exchange(wire: Wire, target: Target, request: httpcore.Request, trust: ssl.SSLContext | None) -> Answer:
    stream = TlsStream(wire, target.host, trust) if target.scheme == "https" else PlainStream(wire)
    connection = httpcore.HTTP11Connection(request.url.origin, stream)
    stream.limit_read(_MAX_HEAD)
    try:
        response = connection.handle_request(request)
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise OutboundError("protocol") from error
    if not 200 <= response.status <= 599:
        raise OutboundError("protocol")
    stream.limit_read(2 * MAX_BODY)
    body, truncated = _body(response.iter_stream())
    return Answer(response.status, _headers(response.headers), body, truncated)


def _body(pieces: Iterable[bytes]) -> tuple[bytes, bool]:
    """Return the body, and whether it is cut. The status is known: a failure from here on costs only the rest of the
    body.
    """
    body = bytearray()
    try:
        for count, piece in enumerate(pieces, 1):
            body += piece
            if len(body) > MAX_BODY or count > _MAX_PIECES:
                return bytes(body[:MAX_BODY]), True
    except (OutboundError, httpcore.NetworkError, httpcore.ProtocolError):
        return bytes(body), True
    return bytes(body), False


def _headers(found: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers; the values of one name are joined with commas."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in found:
        name = raw_name.decode("ascii").lower()
        value = _UNREADABLE.sub(lambda byte: b"\\x%02x" % byte[0][0], raw_value).decode("ascii")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
