"""A SOCKS5 proxy (RFC 1928) for one call of skopeo, in a thread of its own.

As much of the protocol as Go's HTTP client speaks: CONNECT without a login. Every failure gets the same answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

from outbound.addresses import AddressRefused, Network
from vmbackend.images.dial import connect_to_registry

log = logging.getLogger(__name__)
Target = tuple[str, int]

# skopeo fetches six layers at once.
_MAX_CONNECTIONS = 32
_HANDSHAKE_SECONDS = 10.0
_CHUNK = 256 << 10
_VERSION, _NO_LOGIN, _CONNECT = 5, 0, 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_SUCCEEDED, _FAILED = b"\x05\x00\x00\x01" + bytes(6), b"\x05\x01\x00\x01" + bytes(6)


class Relay:
    """The server of listeners from `start` to `close`: a listener with a target passes bytes to it, one without is a
    proxy.
    """

    def __init__(
        self,
        listeners: Sequence[tuple[socket.socket, Target | None]],
        listed: Collection[str],
        refused: Collection[Network] = (),
    ) -> None:
        self._listeners = listeners
        self._listed = listed
        self._refused = refused
        self._open = 0
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._serve_all())
        self._thread = threading.Thread(target=self._run, name="pull-proxy", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End every connection and the thread, and close the listeners."""
        with suppress(RuntimeError):  # its thread has ended by itself
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        finally:
            # Without waiting for a resolver that does not answer.
            self._loop.close()
            for listener, _ in self._listeners:
                listener.close()

    async def _serve_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for listener, target in self._listeners:
                group.create_task(self._accept(listener, target, group))

    async def _accept(self, listener: socket.socket, target: Target | None, group: asyncio.TaskGroup) -> None:
        listener.setblocking(False)
        while True:
            client, _ = await self._loop.sock_accept(listener)
            if self._open >= _MAX_CONNECTIONS:
                client.close()
            else:
                self._open += 1
                group.create_task(self._serve(client, target))

    async def _serve(self, client: socket.socket, target: Target | None) -> None:
        """Raise nothing but a cancellation: an error here would end the other connections."""
        with client:
            try:
                client.setblocking(False)
                if target is None:
                    await self._serve_proxy(client)
                else:
                    await self._pass(client, target)
            except* Exception as errors:
                log.info("a connection of an image pull ended: %s", errors.exceptions[0])
            finally:
                self._open -= 1

    async def _serve_proxy(self, client: socket.socket) -> None:
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            target = await self._read_target(client)
        try:
            server = await connect_to_registry(*target, self._listed, self._refused)
        except (AddressRefused, OSError, TimeoutError) as error:
            log.warning("an image pull did not reach %s:%d: %s", *target, error)
            await self._loop.sock_sendall(client, _FAILED)
            return
        with server:
            await self._loop.sock_sendall(client, _SUCCEEDED)
            await self._exchange(client, server)

    async def _pass(self, client: socket.socket, target: Target) -> None:
        with await connect_to_registry(*target, self._listed, self._refused) as server:
            await self._exchange(client, server)

    async def _read_target(self, client: socket.socket) -> Target:
        """Return the place that a SOCKS5 client wants to go to. Raise ValueError for anything else."""
        version, methods = await self._read(client, 2)
        if version != _VERSION or _NO_LOGIN not in await self._read(client, methods):
            raise ValueError("not a SOCKS5 client without a login")
        await self._loop.sock_sendall(client, bytes([_VERSION, _NO_LOGIN]))
        version, command, _, kind = await self._read(client, 4)
        if (version, command) != (_VERSION, _CONNECT):
            raise ValueError("not a SOCKS5 CONNECT")
        host = await self._read_host(client, kind)
        return host, int(struct.unpack("!H", await self._read(client, 2))[0])

    async def _read_host(self, client: socket.socket, kind: int) -> str:
        if kind == _IPV4:
            return str(IPv4Address(await self._read(client, 4)))
        if kind == _IPV6:
            return str(IPv6Address(await self._read(client, 16)))
        if kind == _NAME:
            return (await self._read(client, (await self._read(client, 1))[0])).decode("ascii")
        raise ValueError("an unknown kind of address")

    async def _read(self, client: socket.socket, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = await self._loop.sock_recv(client, size - len(found))
            if not piece:
                raise EOFError("the client closed the connection")
            found += piece
        return found

    async def _exchange(self, client: socket.socket, server: socket.socket) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._copy(client, server))
            both.create_task(self._copy(server, client))

    async def _copy(self, source: socket.socket, target: socket.socket) -> None:
        buffer = memoryview(bytearray(_CHUNK))
        while count := await self._loop.sock_recv_into(source, buffer):
            await self._loop.sock_sendall(target, buffer[:count])
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
