"""A connection whose every step is bounded: by one deadline for all of them, and by what the other side may send.

The limits of httpx and of sockets are for each read, so a receiver that sends a byte at a time outlasts them. TLS runs
over memory buffers: OpenSSL on a socket goes on for as long as records without data arrive.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import httpcore

from outbound.errors import OutboundError

T = TypeVar("T")

_MAX_ADDRESSES = 4  # tried for one name
_PIECE = 16 << 10
_MAX_READS = 1024  # an answer that arrives in more pieces is not an honest one
_MAX_RECEIVED = 256 << 10  # bytes on the wire: TLS and the framing included
_RECEIVE_BUFFER = 64 << 10  # what a receiver may leave in the kernel

# Python's own without finite-field Diffie-Hellman, where the receiver would choose the cost: a prime of 10,000 bits.
_CIPHERS = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"


@cache
def tls_context(authority: str = "") -> ssl.SSLContext:
    """Return the context for all connections of the process: it trusts the host's certificates and does not change.

    `authority`: a file with the certificates to trust instead. Raise OSError (ssl.SSLError is one) if it has none.
    """
    context = ssl.create_default_context(cafile=authority or None)
    context.set_alpn_protocols(["http/1.1"])
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


class Wire:
    """A connected socket with a deadline on `time.monotonic`. Closing it in the middle of an answer resets it."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._until = until
        self._reads = _MAX_READS
        self._left = _MAX_RECEIVED

    def receive_bytes(self, size: int = _PIECE) -> bytes:
        """Return at most `size`, and at most 16 KiB; b"" at the end. Raise OutboundError (timeout, protocol,
        too_large).
        """
        self._reads -= 1
        if self._reads < 0 or self._left <= 0:
            raise OutboundError("too_large")
        self._connection.settimeout(seconds_left(self._until))
        try:
            data = self._connection.recv(min(size, _PIECE, self._left))
        except TimeoutError as error:
            raise OutboundError("timeout") from error
        except OSError as error:
            raise OutboundError("protocol") from error
        self._left -= len(data)
        return data

    def send_bytes(self, data: bytes) -> None:
        """Send all of it. Raise OutboundError (timeout), and httpcore.WriteError if the receiver has closed."""
        view = memoryview(data)
        while view:
            self._connection.settimeout(seconds_left(self._until))
            try:
                view = view[self._connection.send(view) :]
            except TimeoutError as error:
                raise OutboundError("timeout") from error
            except OSError as error:
                raise httpcore.WriteError from error

    def close_now(self, *, reset: bool) -> None:
        """Close the socket. With `reset` the kernel keeps nothing that is not yet sent."""
        if reset:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()


class PlainStream(httpcore.NetworkStream):
    """The stream that httpcore writes a request to and reads an answer from. The `timeout` of its calls is not used."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._limit = 0
        self._reads = _MAX_READS  # of TLS each may be a record of one byte

    def limit_read(self, size: int) -> None:
        """Limit what is read from now on to `size` bytes; then OutboundError (too_large) is raised."""
        self._limit = size

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._reads -= 1
        if self._reads < 0 or self._limit <= 0:
            raise OutboundError("too_large")
        data = self._received(min(max_bytes, self._limit, _PIECE))
        self._limit -= len(data)
        return data

    def _received(self, size: int) -> bytes:
        return self._wire.receive_bytes(size)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._wire.send_bytes(buffer)

    def close(self) -> None:
        """Do nothing: the opener of the wire closes it."""

    def get_extra_info(self, info: str) -> Any:
        return None


class TlsStream(PlainStream):
    """The same inside of TLS, whose handshake is made at once. Raises OutboundError (tls, timeout, too_large)."""

    def __init__(self, wire: Wire, server_name: str, trust: ssl.SSLContext | None = None) -> None:
        super().__init__(wire)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        context = trust or tls_context()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        try:
            self._step(self._tls.do_handshake)
        except ssl.SSLCertVerificationError as error:
            raise OutboundError("tls", "The receiver's certificate is not valid for the URL's host.") from error
        except (ssl.SSLError, httpcore.WriteError) as error:
            raise OutboundError("tls") from error
        except OutboundError as error:
            raise OutboundError("tls") if error.kind == "protocol" else error from error

    def _received(self, size: int) -> bytes:
        try:
            return self._step(lambda: self._tls.read(size))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""
        except ssl.SSLError as error:
            raise OutboundError("protocol") from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self._step(lambda: self._tls.write(buffer))
        except ssl.SSLError as error:
            raise httpcore.WriteError from error

    def _step(self, call: Callable[[], T]) -> T:
        while True:
            try:
                result = call()
            except ssl.SSLWantReadError:
                self._flush()
                self._feed()
            except ssl.SSLError:
                self._flush()  # the alert that says why
                raise
            else:
                self._flush()
                return result

    def _feed(self) -> None:
        if data := self._wire.receive_bytes():
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._wire.send_bytes(data)


def open_wire(addresses: Sequence[str], port: int, until: float) -> Wire:
    """Return a connection to the first of the addresses that accepts one. Raise OutboundError (connect, timeout)."""
    tried = addresses[:_MAX_ADDRESSES]
    failure: OSError | None = None
    for position, address in enumerate(tried):
        seconds = seconds_left(until) / (len(tried) - position)
        try:
            return Wire(open_socket(address, port, seconds), until)
        except OSError as error:
            failure = error
    raise OutboundError("timeout" if isinstance(failure, TimeoutError) else "connect") from failure


def open_socket(address: str, port: int, seconds: float) -> socket.socket:
    """Return a socket that is connected to a numeric address. Raise OSError, TimeoutError."""
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        connection.connect((address, port))
    except BaseException:
        connection.close()
        raise
    return connection


def seconds_left(until: float) -> float:
    """Return the seconds until that time of `time.monotonic`. Raise OutboundError (timeout) once it is over."""
    left = until - time.monotonic()
    if left <= 0:
        raise OutboundError("timeout")
    return left
