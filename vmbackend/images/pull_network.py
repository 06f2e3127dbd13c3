"""The network of one call of skopeo: a network namespace in which nothing but a SOCKS5 proxy of this process answers.

A registry is named by a user, and its answers name further places: the realm of a token, the target of a redirect. So
no check of the name in front is enough. skopeo has no way to any address but through the proxy, which resolves each
name itself, checks every address (`outbound.addresses`) and connects to the one that it checked. Whatever the reason,
skopeo gets the same refusal, so its messages tell nothing about the operator's network.

SOCKS5 (RFC 1928), as Go's HTTP client speaks it for http and https alike. Go never uses a proxy for loopback addresses:
for a registry on the host's own loopback that a setting lists, the same port in the namespace leads to the host's.

The bytes pass through a thread of this process (`relay.py`), in pieces of up to 256 KiB.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from outbound.addresses import Network
from vmbackend.errors import BackendUnavailable
from vmbackend.images.relay import Relay, Target

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_LOOPBACK = "127.0.0.1"
_DEFAULT_PORTS = (443, 80)  # of a registry named without a port; 80 only without TLS


@dataclass(frozen=True, slots=True)
class PullNetwork:
    """`descriptor` of the namespace, and the address of the proxy in it."""

    descriptor: int
    proxy: str

    def environment(self) -> dict[str, str]:
        """Return the variables with which skopeo uses the proxy."""
        return {"HTTP_PROXY": self.proxy, "HTTPS_PROXY": self.proxy}


@contextmanager
def pull_network(registry: str, listed: Collection[str], refused: Collection[Network] = ()) -> Iterator[PullNetwork]:
    """Yield a network for requests to `registry`; its connections and its thread end with the block.

    `listed`: registries (`host` or `host:port`) that may be on any address; all others are public and outside of the
    networks `refused`. Raise BackendUnavailable.
    """
    host, ports = _loopback_ports(registry) if registry in listed else ("", [])
    address = "::1" if ":" in host else _LOOPBACK if host == "localhost" else host
    try:
        # A fresh thread, as a thread's network namespace is its own; it ends with the block.
        with ThreadPoolExecutor(1) as executor:
            # The proxy last: its port is one that is free then.
            places = [*((address, port) for port in ports), (_LOOPBACK, 0)]
            descriptor, listeners = executor.submit(_make_namespace, places).result()
    except OSError as error:
        raise BackendUnavailable("The host cannot make a network namespace; run the doctor command.") from error
    targets: list[Target | None] = [*((host, port) for port in ports), None]
    relay = Relay(list(zip(listeners, targets, strict=True)), listed, refused)
    proxy = f"socks5://{_LOOPBACK}:{listeners[-1].getsockname()[1]}"
    relay.start()
    try:
        yield PullNetwork(descriptor, proxy)
    finally:
        relay.close()
        os.close(descriptor)


def _loopback_ports(registry: str) -> tuple[str, list[int]]:
    """Return host and ports of a registry on loopback; no ports for others."""
    parts = urlsplit(f"//{registry}")
    host = parts.hostname or ""
    try:
        loopback = host == "localhost" or ip_address(host).is_loopback
        ports = [parts.port] if parts.port else list(_DEFAULT_PORTS)
    except ValueError:  # a name, or a port that does not exist
        return host, []
    return host, ports if loopback else []


def _make_namespace(places: Sequence[tuple[str, int]]) -> tuple[int, list[socket.socket]]:
    """Move this thread into a new network namespace; a descriptor of it, and listeners there. Raise OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))
    listeners: list[socket.socket] = []
    try:
        for host, port in places:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listeners.append(socket.create_server((host, port), family=family))
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC), listeners
    except OSError:
        for listener in listeners:
            listener.close()
        raise
