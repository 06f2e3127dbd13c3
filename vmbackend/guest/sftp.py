"""The file side of a guest session: SFTP over an exec channel that runs the kit's sftp-server.

dropbear's `sftp` subsystem path is compiled in and does not exist in images, so asyncssh's
`SSHClientConnection.start_sftp_client` cannot be used. What it does beyond opening the subsystem is one
call of
`asyncssh.sftp.start_sftp_client(connection, loop, errors, reader, writer, encoding, errors, version)`,
which is made
here with the streams of an exec channel (asyncssh 2.24; a test fails where that changes).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import asyncssh
from asyncssh.sftp import start_sftp_client

from vmbackend.errors import BackendError, GuestUnreachable

from .connection import Channel, Connection
from .translate import UNREACHABLE, translated

T = TypeVar("T")
# SFTP version 3 is what OpenSSH's server speaks.
_VERSION = 3


class FileChannel:
    """A kept-open SFTP client, remade after it broke. Every request is bounded in time and translated."""

    def __init__(self, connection: Connection, server: str, request_timeout: float) -> None:
        self._connection = connection
        self._server = server
        self._timeout = request_timeout
        self._client: asyncssh.SFTPClient | None = None
        self._channel: Channel | None = None
        self._starting = asyncio.Lock()

    async def client(self) -> asyncssh.SFTPClient:
        """The open client, proven alive by one round trip: a dead connection is noticed only by using it.

        Raises GuestUnreachable.
        """
        async with self._starting:
            if self._client is not None:
                with suppress(BackendError):
                    await self.ask(self._client.realpath("/"))
            if self._client is None or self._channel is None or self._channel.is_closing():
                self._client = await self._start()
            return self._client

    async def ask(self, request: Awaitable[T], path: str = "") -> T:
        """Await one request.

        A server that does not answer in time is hung (a file that blocks): it is left.
        """
        try:
            with translated(path):
                async with asyncio.timeout(self._timeout):
                    return await request
        except GuestUnreachable:
            self.drop()
            raise

    def drop(self) -> None:
        """Close the channel; requests under way fail with GuestUnreachable, the next one starts anew."""
        channel, self._channel, self._client = self._channel, None, None
        if channel is not None:
            channel.close()

    @asynccontextmanager
    async def opened(
        self, path: str, flags: int, attributes: asyncssh.SFTPAttrs | None = None
    ) -> AsyncIterator[asyncssh.SFTPClientFile]:
        """A file handle, closed at the end.

        `block_size=None`: one call is one request, we do the pipelining.
        """
        client = await self.client()
        handle = await self.ask(
            client.open(path, flags, attributes or asyncssh.SFTPAttrs(), encoding=None, block_size=None), path
        )
        try:
            yield handle
        finally:
            # A handle that cannot be closed ends with its channel.
            with suppress(GuestUnreachable):
                await self.ask(handle.close(), path)

    async def _start(self) -> asyncssh.SFTPClient:
        channel = await self._connection.keep(self._server)
        try:
            with translated():
                async with asyncio.timeout(self._timeout):
                    client = await start_sftp_client(
                        channel.connection,
                        asyncio.get_running_loop(),
                        "replace",
                        channel.process.stdout,
                        channel.process.stdin,
                        "utf-8",
                        "surrogateescape",
                        _VERSION,
                    )
        except BaseException:
            channel.close()
            raise
        if channel.is_closing():
            raise GuestUnreachable(UNREACHABLE)
        self._channel = channel
        return client
