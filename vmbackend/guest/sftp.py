"""The file side of a guest session: SFTP over an exec channel that runs the kit's sftp-server.

dropbear's `sftp` subsystem path is compiled in and does not exist in images, so asyncssh's
`SSHClientConnection.start_sftp_client` cannot be used. What it does beyond opening the subsystem is one call of
`asyncssh.sftp.start_sftp_client(connection, loop, errors, reader, writer, encoding, errors, version)`, which is made
here with the streams of an exec channel (asyncssh 2.24; a test fails where that changes).

Partial files of writes are noted inside the guest, as links in a folder of the channel's own. The shell that runs the
server removes what is noted when the server has ended, which it does when its channel or our process dies: so a broken
upload leaves nothing, whoever broke it.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from posixpath import basename, join
from typing import TypeVar

import asyncssh
from asyncssh.sftp import start_sftp_client

from vmbackend.errors import BackendError, GuestPathInvalid, GuestPathNotFound, GuestUnreachable

from .commands import KitPaths
from .connection import Channel, Connection
from .translate import UNREACHABLE, translate_errors

T = TypeVar("T")
# SFTP version 3 is what OpenSSH's server speaks.
_VERSION = 3
# $1 the server, $2 the folder of tracking_dir, $3 busybox. The end of the connection is no reason to die before the
# cleaning.
_SERVE = """trap "" HUP INT PIPE TERM
"$3" mkdir -m 700 "$2"
"$1"
for note in "$2"/*; do
    partial=$("$3" readlink -n "$note") && "$3" rm -f "$partial"
done
"$3" rm -rf "$2"
"""


class FileChannel:
    """A kept-open SFTP client, remade after it broke. Every request is bounded in time and translate_errors."""

    def __init__(self, connection: Connection, kit: KitPaths, request_timeout: float) -> None:
        self._connection = connection
        self._kit = kit
        self._tracking_dir = ""
        self._waits: list[float] = []
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
                    await self.request(self._client.realpath("/"))
            if self._client is None or self._channel is None or self._channel.is_closing():
                self._client = await self._start()
            return self._client

    async def request(self, pending: Awaitable[T], path: str = "", seconds: float | None = None) -> T:
        """Await one request, for so many seconds or the settings' request timeout.

        A server that does not answer in time is hung (a file that blocks): it is left. It answers one request after
        the other, so that each is given as long as the most patient of those under way.
        """
        patience = seconds or self._timeout
        self._waits.append(patience)
        try:
            with translate_errors(path):
                async with asyncio.timeout(max(self._waits)):
                    return await pending
        except GuestUnreachable:
            self.reset()
            raise
        finally:
            self._waits.remove(patience)

    def reset(self) -> None:
        """Close the channel; requests under way fail with GuestUnreachable, the next one starts anew.

        With its connection, on which nothing else runs: dropbear mixes up a session that ends with one that begins.
        """
        channel, self._channel, self._client = self._channel, None, None
        if channel is not None:
            channel.close()
            channel.connection.abort()

    @asynccontextmanager
    async def open_file(
        self, path: str, flags: int, attributes: asyncssh.SFTPAttrs | None = None
    ) -> AsyncIterator[asyncssh.SFTPClientFile]:
        """A file handle, closed at the end.

        `block_size=None`: one call is one request, we do the pipelining.
        """
        client = await self.client()
        handle = await self.request(
            client.open(path, flags, attributes or asyncssh.SFTPAttrs(), encoding=None, block_size=None), path
        )
        try:
            yield handle
        finally:
            # A handle that cannot be closed ends with its channel.
            with suppress(GuestUnreachable):
                await self.request(handle.close(), path)

    @asynccontextmanager
    async def tracked_partial(self, partial: str) -> AsyncIterator[None]:
        """While this lasts, the guest removes `partial` if the channel ends. Best effort: the guest may refuse it."""
        client = await self.client()
        note = join(self._tracking_dir, basename(partial).removeprefix("."))  # which the shell's `*` passes over
        with suppress(GuestPathInvalid, GuestPathNotFound):
            # The arguments are the wrong way round, as OpenSSH's server reads them so; asyncssh would turn them if it
            # knew, but sees the name of the SSH server only.
            await self.request(client.symlink(note, partial), note)
        try:
            yield
        finally:
            with suppress(BackendError):
                await self.request(client.remove(note), note)

    async def _start(self) -> asyncssh.SFTPClient:
        tracking_dir = join(self._kit.tracking, f".files-{secrets.token_hex(8)}")
        kit = self._kit
        line = shlex.join([kit.busybox, "sh", "-c", _SERVE, "files", kit.sftp_server, tracking_dir, kit.busybox])
        channel = await self._connection.open_channel(line)
        try:
            with translate_errors():
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
        self._channel, self._tracking_dir = channel, tracking_dir
        return client
