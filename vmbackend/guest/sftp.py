"""The file side of a guest session: SFTP over an exec channel that runs the kit's sftp-server.

dropbear's `sftp` subsystem path is compiled in and does not exist in images, so asyncssh's
`SSHClientConnection.start_sftp_client` cannot be used; `sftp_client.py` has the client for the streams of a channel.

Partial files of writes are tracked inside the guest, as links in a directory per channel. The shell that runs the
server removes the tracked files after the server has exited, which happens when its channel closes or this process
dies: so a broken upload leaves nothing behind.
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

from vmbackend.errors import BackendError, GuestPathInvalid, GuestPathNotFound, GuestUnreachable

from .commands import KitPaths
from .connection import Channel, Connection
from .sftp_client import start_sftp
from .translate import UNREACHABLE, translate_errors

T = TypeVar("T")
# $1 the server, $2 the tracking directory, $3 busybox. The signals of a closed connection must not prevent the
# clean-up.
_SERVE = """trap "" HUP INT PIPE TERM
"$3" mkdir -m 700 "$2"
"$1"
for note in "$2"/*; do
    partial=$("$3" readlink -n "$note") && "$3" rm -f "$partial"
done
"$3" rm -rf "$2"
"""


class FileChannel:
    """A persistent SFTP client, replaced after a failure. Every request has a timeout and translated errors."""

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
        """Return the open client, verified by one round trip: a dead connection is only detected by using it.

        Raise GuestUnreachable.
        """
        async with self._starting:
            if self._client is not None:
                with suppress(BackendError):
                    await self.request(self._client.realpath("/"))
            if self._client is None or self._channel is None or self._channel.is_closing():
                self._client = await self._start()
            return self._client

    async def request(self, pending: Awaitable[T], path: str = "", seconds: float | None = None) -> T:
        """Await one request, for `seconds` or the settings' request timeout.

        A server that does not answer in time hangs (a file that blocks): its channel is closed. It answers requests
        one after the other, so each may take as long as the longest timeout of those in flight.
        """
        timeout = seconds or self._timeout
        self._waits.append(timeout)
        try:
            with translate_errors(path):
                async with asyncio.timeout(max(self._waits)):
                    return await pending
        except GuestUnreachable:
            self.reset()
            raise
        finally:
            self._waits.remove(timeout)

    def reset(self) -> None:
        """Close the channel; requests in flight fail with GuestUnreachable, the next one opens a new channel.

        Also closes its connection, which has no other use: dropbear confuses an ending session with a beginning one.
        """
        channel, self._channel, self._client = self._channel, None, None
        if channel is not None:
            channel.close()
            channel.connection.abort()

    @asynccontextmanager
    async def open_file(
        self, path: str, flags: int, attributes: asyncssh.SFTPAttrs | None = None
    ) -> AsyncIterator[asyncssh.SFTPClientFile]:
        """Yield a file handle, closed at the end.

        `block_size=None`: one call is one request; the callers pipeline.
        """
        client = await self.client()
        handle = await self.request(
            client.open(path, flags, attributes or asyncssh.SFTPAttrs(), encoding=None, block_size=None), path
        )
        try:
            yield handle
        finally:
            # A handle that cannot be closed is released with its channel.
            with suppress(GuestUnreachable):
                await self.request(handle.close(), path)

    @asynccontextmanager
    async def tracked_partial(self, partial: str) -> AsyncIterator[None]:
        """Within the block the guest removes `partial` if the channel ends. Best effort: the guest may fail to."""
        client = await self.client()
        tracker = join(self._tracking_dir, basename(partial).removeprefix("."))  # which the shell's `*` would skip
        with suppress(GuestPathInvalid, GuestPathNotFound):
            # The arguments are swapped, as OpenSSH's server expects; asyncssh swaps them itself only if it recognizes
            # the server by the SSH server's name.
            await self.request(client.symlink(tracker, partial), tracker)
        try:
            yield
        finally:
            with suppress(BackendError):
                await self.request(client.remove(tracker), tracker)

    async def _start(self) -> asyncssh.SFTPClient:
        tracking_dir = join(self._kit.tracking, f".files-{secrets.token_hex(8)}")
        kit = self._kit
        line = shlex.join([kit.busybox, "sh", "-c", _SERVE, "files", kit.sftp_server, tracking_dir, kit.busybox])
        channel = await self._connection.open_channel(line)
        try:
            with translate_errors():
                async with asyncio.timeout(self._timeout):
                    process = channel.process
                    client = await start_sftp(channel.connection, process.stdout, process.stdin)
        except BaseException:
            channel.close()
            raise
        if channel.is_closing():
            raise GuestUnreachable(UNREACHABLE)
        self._channel, self._tracking_dir = channel, tracking_dir
        return client
