"""Connections to registries: resolved once, checked, and opened to the address that was checked."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from collections.abc import Collection
from functools import partial
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from outbound.addresses import AddressRefused, Network, addresses_of, public_addresses

log = logging.getLogger(__name__)
_CONNECT_SECONDS = 10.0
_MAX_ADDRESSES = 4  # tried for one name
_DEFAULT_PORTS = ("443", "80")  # of a registry that is listed without a port
_MAX_HEAD = 8192


def is_listed(host: str, port: int, listed: Collection[str]) -> bool:
    """Return whether a setting names this place: such registries may be on any address."""
    name = f"[{host}]" if ":" in host else host
    names = {name.lower() for name in listed}
    return f"{name}:{port}".lower() in names or (str(port) in _DEFAULT_PORTS and name.lower() in names)


async def connect_to_registry(
    host: str, port: int, listed: Collection[str], refused: Collection[Network] = ()
) -> socket.socket:
    """Return a connection to a registry or to what it named. Raise AddressRefused, OSError, TimeoutError.

    Through the proxy of this process's environment (HTTPS_PROXY) if there is one, to the address that was checked here.
    """
    loop = asyncio.get_running_loop()
    check = addresses_of if is_listed(host, port, listed) else partial(public_addresses, refused=refused)
    addresses = await loop.run_in_executor(None, check, host, port)
    proxy = _upstream_proxy(host)
    failure: Exception = AddressRefused(f"{host} has no address")
    for address in addresses[:_MAX_ADDRESSES]:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await (_connect(address, port) if proxy is None else _connect_through(proxy, address, port))
        except (OSError, TimeoutError) as error:
            failure = error
    raise failure


async def _connect(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection


def _upstream_proxy(host: str) -> SplitResult | None:
    """Return the operator's own proxy for https, unless it is to be left out for this host."""
    address = getproxies_environment().get("https", "")
    if not address or proxy_bypass(host):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


async def _connect_through(proxy: SplitResult, address: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(None, addresses_of, proxy.hostname or "", proxy.port or 80)
    connection = await _connect(found[0], proxy.port or 80)
    try:
        place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if proxy.username:
            login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}")
        await loop.sock_sendall(connection, "\r\n".join([*lines, "", ""]).encode())
        await _require_tunnel(connection)
    except BaseException:
        connection.close()
        raise
    return connection


async def _require_tunnel(connection: socket.socket) -> None:
    """Read the proxy's answer, byte by byte: what follows belongs to the tunnel. Raise OSError unless it is a 200."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = await asyncio.get_running_loop().sock_recv(connection, 1)
        head += piece
        if not piece or len(head) > _MAX_HEAD:
            raise OSError("the proxy closed the connection")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise OSError("the proxy refused the connection")
