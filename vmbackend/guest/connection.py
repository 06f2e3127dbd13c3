"""Persistent SSH connections to a guest, reconnected if found dead before a command was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import asyncssh

from vmbackend.errors import GuestUnreachable

from .deadlines import acquire_place
from .session import GuestAddress
from .ssh_limits import CpuBudget, connect_guest, require_long_packets
from .ssh_process import GuestProcess
from .translate import translate_errors


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Times in seconds. `max_channels` bounds the commands that run at once in one guest."""

    connect_timeout: float = 10.0
    request_timeout: float = 30.0
    keepalive_interval: float = 15.0
    keepalive_count: int = 3
    # Concurrent commands in one guest; each needs its own connection, see CommandConnections.
    max_channels: int = 10
    # The same for commands of the platform itself (a listing, a sync), which never wait for those of users.
    reserved_channels: int = 2
    # Unread bytes per channel; limits memory per command.
    window: int = 256 * 1024


@dataclass(frozen=True, slots=True)
class Channel:
    """A remote command with byte streams, and the connection it runs on."""

    connection: asyncssh.SSHClientConnection
    process: asyncssh.SSHClientProcess[bytes]

    def is_closing(self) -> bool:
        """Return whether either side has closed it, or the connection under it."""
        return self.process.channel.is_closing() or self.connection.is_closed()

    def close(self) -> None:
        """Close it; the guest's process sees the end of its input and a broken output pipe."""
        self.process.close()


class Connection:
    """The connection to one guest; belongs to one event loop."""

    def __init__(
        self,
        address: GuestAddress,
        private_key: Path,
        settings: ConnectionSettings,
        login_limit: asyncio.Semaphore | None = None,
        budget: CpuBudget | None = None,
    ) -> None:
        self._address = address
        self._private_key = private_key
        self._settings = settings
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._login_limit = login_limit or asyncio.Semaphore(1)
        self.budget = budget or CpuBudget()

    async def close(self) -> None:
        """Close the connection. The next channel opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
            await connection.wait_closed()

    async def open_channel(self, command: str) -> Channel:
        """Open a channel for a command, which the caller closes; reconnects once if the connection is dead.

        The retry is safe as the guest cannot have seen the command: asyncssh calls the session factory when the
        channel is open and before the command is sent.
        """
        connection, made_now = await self._connected()
        opened = _Opened()
        try:
            return await self._open(connection, command, opened)
        except GuestUnreachable:
            if opened.called or made_now:
                raise
            # asyncssh may not have marked the connection of a dead peer as closed yet.
            connection.abort()
            await connection.wait_closed()
        connection, _ = await self._connected()
        return await self._open(connection, command, _Opened())

    async def _open(self, connection: asyncssh.SSHClientConnection, command: str, opened: _Opened) -> Channel:
        with translate_errors():
            async with asyncio.timeout(self._settings.request_timeout):
                _, process = await connection.create_session(
                    opened, command, encoding=None, window=self._settings.window
                )
                require_long_packets(connection, cast("GuestProcess", process))
                return Channel(connection, cast("asyncssh.SSHClientProcess[bytes]", process))

    async def _connected(self) -> tuple[asyncssh.SSHClientConnection, bool]:
        """Return the open connection, and whether it was just opened."""
        async with self._connecting:
            if self._connection is not None and not self._connection.is_closed():
                return self._connection, False
            async with self._login_limit:
                self._connection = await self._connect()
            return self._connection, True

    async def _connect(self) -> asyncssh.SSHClientConnection:
        settings = self._settings
        with translate_errors():
            host_key = asyncssh.import_public_key(self._address.host_key)
            async with asyncio.timeout(settings.connect_timeout):
                return await connect_guest(
                    self._address.ip,
                    self._address.port,
                    self.budget,
                    username="root",
                    client_keys=[str(self._private_key)],
                    # Only the key of this machine: addresses are reused.
                    known_hosts=([host_key], [], []),
                    preferred_auth="publickey",
                    # The host user's SSH configuration and agent must not be used with a hostile guest.
                    config=None,
                    agent_path=None,
                    keepalive_interval=settings.keepalive_interval,
                    keepalive_count_max=settings.keepalive_count,
                )


class _Opened:
    """A session factory that records whether it was called."""

    def __init__(self) -> None:
        self.called = False

    def __call__(self) -> asyncssh.SSHClientProcess[bytes]:
        self.called = True
        return GuestProcess()


class CommandConnections:
    """Connections that stay open, each of which runs one command at a time.

    dropbear 2022.83 confuses the sessions of one connection if a command ends while another begins: with short
    commands, four at a time on one connection, a fifth failed, some of them although they had run; one at a time, none
    of 100 did.
    """

    def __init__(
        self, address: GuestAddress, private_key: Path, settings: ConnectionSettings, budget: CpuBudget
    ) -> None:
        # dropbear resets a sixth connection that has not logged in yet.
        self._arguments = (address, private_key, settings, asyncio.Semaphore(2), budget)
        self._free = asyncio.Semaphore(settings.max_channels)
        self._reserved = asyncio.Semaphore(settings.reserved_channels)
        self._idle: list[Connection] = []

    @asynccontextmanager
    async def channel(self, command: str, *, reserved: bool = False, once: bool = False) -> AsyncIterator[Channel]:
        """Run `command` on a free connection, with `reserved` also on a reserved one.

        Raise GuestUnreachable, GuestBusy.

        A connection is reused only after the command ended, and never with `once`: the memory of its server in the
        guest ends with it. Otherwise it is closed, which ends the command.
        """
        # The platform's own commands take the reserved ones only while commands of users hold all others.
        async with _held(self._reserved if reserved and self._free.locked() else self._free):
            connection = self._idle.pop() if self._idle else Connection(*self._arguments)
            ended = False
            try:
                channel = await connection.open_channel(command)
                yield channel
                ended = channel.is_closing() and not once
            finally:
                if ended:
                    self._idle.append(connection)
                else:
                    await connection.close()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold one of the places of users' commands, for a command that needs no connection of its own. Raise
        GuestBusy.
        """
        async with _held(self._free):
            yield

    async def close(self) -> None:
        """Close idle connections; the others are closed when their commands are cancelled."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()


@asynccontextmanager
async def _held(places: asyncio.Semaphore) -> AsyncIterator[None]:
    await acquire_place(places)
    try:
        yield
    finally:
        places.release()
