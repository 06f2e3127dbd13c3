"""Connections and channels of SSH between hosts, of which either side may send anything.

The packets of the other side have a share of the loop's time (`vmbackend.guest.ssh_limits`). What it does not take is
not read from rsync, and what rsync does not take is not read from it.

Relies on internals of asyncssh 2.24, beside those that `ssh_limits` and `ssh_process` name: `_send`, and the handlers
`_process_..._request` of a channel, by their names.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import asyncssh
from asyncssh.connection import SSHConnection

from vmbackend.guest.ssh_limits import ALGORITHMS as GUEST_ALGORITHMS
from vmbackend.guest.ssh_limits import MIN_SENT_PACKET, CpuBudget, LimitedPackets, TotalBudget
from vmbackend.guest.ssh_process import MergedBacklog, deliver_data

# AES has instructions of its own in every processor that runs machines.
ALGORITHMS: dict[str, Any] = GUEST_ALGORITHMS | {"encryption_algs": ["aes128-gcm@openssh.com"]}
PACKET = 128 << 10  # of data
MAX_PACKET = PACKET + (4 << 10)
SOURCE_WINDOW = 256 << 10  # what a source has unread of a target, which only says what it has
TARGET_WINDOW = 2 << 20
CHUNK = 128 << 10
# Bytes that wait for rsync; twice as many and a window wait for nothing else.
MAX_WAITING = 512 << 10
# What is sent is wanted by this side; a packet that asks for it costs less than this of its bytes.
_SENT_PART = 5


class TransferConnection(LimitedPackets, SSHConnection):
    """Connection of either side: with a limit of what the other side's packets cost, and a wait for it to take what was
    written.
    """

    def begin_limits(self, budget: CpuBudget) -> None:
        """Begin with both; called before anything is received."""
        self.limit_packets(budget, MAX_PACKET)
        self._taken = asyncio.Event()
        self._taken.set()

    def charge(self, budget: CpuBudget) -> None:
        """Charge the packets from now on to another budget."""
        self._budget = budget

    async def wait_taken(self) -> None:
        """Return when the network has taken most of what was written."""
        await self._taken.wait()

    def pause_writing(self) -> None:
        self._taken.clear()

    def resume_writing(self) -> None:
        self._taken.set()

    def connection_lost(self, exc: Exception | None = None) -> None:
        self._taken.set()
        super().connection_lost(exc)

    def _send(self, data: bytes) -> None:
        self._received += len(data) // _SENT_PART
        super()._send(data)


class ServerConnection(TransferConnection, asyncssh.SSHServerConnection):
    """The source's side. A client that fails to log in is not heard for long."""

    MAX_FAILURES = 6

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: asyncssh.SSHServerConnectionOptions, budget: CpuBudget
    ) -> None:
        super().__init__(loop, options)
        self._failures = 0
        self.begin_limits(budget)

    def send_userauth_failure(self, partial_success: bool) -> None:
        self._failures += 1
        if self._failures > self.MAX_FAILURES:
            self.abort()
        else:
            super().send_userauth_failure(partial_success)


class ClientConnection(TransferConnection, asyncssh.SSHClientConnection):
    """The target's side."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: asyncssh.SSHClientConnectionOptions, budget: CpuBudget
    ) -> None:
        super().__init__(loop, options, wait="auth")
        self.begin_limits(budget)


class Bytes:
    """The bytes of one channel, as its session: read with a limit of what waits, written as they are taken."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_ended = False
        self._channel: Any = None

    def connection_made(self, channel: Any) -> None:
        """Note that the channel is open; no data was received yet."""
        self._channel = channel
        channel._recv_buf = MergedBacklog(channel._recv_buf)
        channel._deliver_data = partial(deliver_data, channel)

    def data_received(self, data: bytes, datatype: Any) -> None:
        """Store what came, and let no more come once it is much. What the other side says of errors is dropped."""
        if datatype is None:
            self._waiting += data
            self._arrived.set()
        if len(self._waiting) >= MAX_WAITING:
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        """Note the end of the other side's bytes; this side may go on."""
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that nothing comes any more, and that nothing is taken."""
        self._end()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _end(self) -> None:
        self._is_ended = True
        self._arrived.set()

    async def read(self) -> bytes:
        """Return bytes as they come; none at the end."""
        await self._arrived.wait()
        data = bytes(self._waiting)
        self._waiting.clear()
        if not self._is_ended:
            self._arrived.clear()
        if not self._channel.is_closing():
            self._channel.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Write, and return when the other side has room for more. Raise OSError if it is gone."""
        connection = cast(TransferConnection, self._channel.get_connection()) if self._channel else None
        if connection is None or self._channel.is_closing():
            raise ConnectionResetError("the channel is closed")
        self._channel.write(data)
        await self._writable.wait()
        await connection.wait_taken()

    def end_output(self) -> None:
        """Let the other side see the end of what this one writes."""
        if not self._channel.is_closing():
            self._channel.write_eof()

    def takes_long_packets(self) -> bool:
        """Return whether the other side takes packets that are no waste of time."""
        return bool(self._channel._send_pktsize >= MIN_SENT_PACKET)


def refuse_requests(channel: Any) -> None:
    """Let a channel of the server refuse what asks for more than a command, without storing anything."""
    for name in ("env", "pty_req", "x11_req", "auth_agent_req_at_openssh_dot_com", "subsystem", "shell"):
        setattr(channel, f"_process_{name}_request", _refused)


def _refused(packet: Any) -> bool:
    return False


async def connect(address: str, port: int, **options: Any) -> ClientConnection:
    """Return an open connection, logged in. `options` as for `asyncssh.connect`, whose errors it raises;
    cancellable.
    """
    loop = asyncio.get_running_loop()
    settings = await asyncssh.SSHClientConnectionOptions.construct(host=address, port=port, **ALGORITHMS, **options)
    settings.waiter = loop.create_future()
    budget = CpuBudget(TotalBudget())  # of this loop
    _, connection = await loop.create_connection(lambda: ClientConnection(loop, settings, budget), address, port)
    try:
        await settings.waiter
    except BaseException:
        connection.abort()
        await connection.wait_closed()
        raise
    return connection
