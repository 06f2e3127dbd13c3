"""An SFTP client for a server that may lie: bounds on each answer before it is decoded, and on the time it takes.

The loop that decodes is shared by all guests. asyncssh accepts packets of 4 MiB with any number of names, attributes
and extensions: one answer takes seconds and a hundred megabytes.

Relies on internals of asyncssh 2.24: the methods of `SFTPClientHandler` that are overridden here, which
tests/vmbackend/test_hostile_guest.py checks.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import asyncssh
from asyncssh.constants import (
    FILEXFER_ATTR_ACMODTIME,
    FILEXFER_ATTR_PERMISSIONS,
    FILEXFER_ATTR_SIZE,
    FILEXFER_ATTR_UIDGID,
    FXP_ATTRS,
    FXP_DATA,
    FXP_NAME,
    FXP_READ,
    FXP_READDIR,
)
from asyncssh.packet import SSHPacket
from asyncssh.sftp import SFTPClientHandler

# SFTP version 3 is what OpenSSH's server speaks.
VERSION = 3
MAX_PACKET = 257 * 1024  # OpenSSH's server sends at most 256 KiB
# Every other answer: at most a path in two forms (READLINK).
MAX_SHORT_PACKET = 16 * 1024
MAX_NAMES = 1000  # in an answer; OpenSSH's server sends at most 100
MAX_PATH = 4096
_LONG_ANSWERS = ((FXP_READ, FXP_DATA), (FXP_READDIR, FXP_NAME))
_HEADER = 5  # type and request of an answer
_KNOWN_FLAGS = FILEXFER_ATTR_SIZE | FILEXFER_ATTR_UIDGID | FILEXFER_ATTR_PERMISSIONS | FILEXFER_ATTR_ACMODTIME
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class LimitedSFTPHandler(SFTPClientHandler):
    """Requests and their answers. An answer beyond a limit ends the channel, and only that."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: asyncssh.SSHReader[bytes],
        writer: asyncssh.SSHWriter[bytes],
    ) -> None:
        super().__init__(loop, "replace", reader, writer, VERSION)
        self._kinds: dict[int, int | bytes] = {}
        self._max_packet = MAX_SHORT_PACKET
        self._turn = _turns.setdefault(loop, asyncio.Lock())

    async def start(self) -> None:
        """Agree on the protocol's version. Raises asyncssh.SFTPError, also for another version than 3."""
        await super().start()
        if self.version != VERSION:
            raise asyncssh.SFTPBadMessage(f"Unsupported version: {self.version}")
        self._max_packet = MAX_PACKET

    async def recv_packet(self) -> SSHPacket:
        """The next answer."""
        if self._reader is None:
            raise asyncssh.SFTPNoConnection("Connection not open")
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        if size > self._max_packet:
            raise asyncssh.SFTPBadMessage("Max packet size exceeded")
        return SSHPacket(await self._reader.readexactly(size))

    def _send_request(self, pkttype: int | bytes, args: Sequence[bytes], waiter: Any) -> None:
        self._kinds[self._next_pktid] = pkttype
        super()._send_request(pkttype, args, waiter)

    async def _process_packet(self, pkttype: int, pktid: int, packet: SSHPacket) -> None:
        kind = self._kinds.pop(pktid, None)
        if _is_within_limits(kind, pkttype, packet.get_full_payload()):
            await super()._process_packet(pkttype, pktid, packet)
        else:
            await self._cleanup(asyncssh.SFTPBadMessage("Answer exceeds its limits"))

    async def _cleanup(self, exc: Exception | None) -> None:
        self._kinds.clear()
        await super()._cleanup(exc)

    async def _make_request(self, pkttype: int | bytes, *args: bytes) -> object:
        if pkttype != FXP_READDIR:
            return await super()._make_request(pkttype, *args)
        waiter: asyncio.Future[tuple[int, SSHPacket]] = self._loop.create_future()
        self._send_request(pkttype, args, waiter)
        kind, answer = await waiter
        # One long answer in each iteration of the loop, of whatever guest: several that arrive together take turns.
        async with self._turn:
            result = self._decoded(kind, answer)
            await asyncio.sleep(0)
        return result

    def _decoded(self, kind: int, answer: SSHPacket) -> object:
        if kind == FXP_NAME:
            return self._process_name(answer)
        SFTPClientHandler._process_status(self, answer)
        raise asyncssh.SFTPBadMessage("Unexpected FX_OK response")

    def _process_name(self, packet: SSHPacket) -> tuple[list[asyncssh.SFTPName], bool]:
        names = [_name(packet) for _ in range(packet.get_uint32())]
        packet.check_end()
        return names, False

    def _process_attrs(self, packet: SSHPacket) -> asyncssh.SFTPAttrs:
        found = _attributes(packet)
        packet.check_end()
        return found

    _packet_handlers: Mapping[int, Any] = {  # type: ignore[assignment]
        **SFTPClientHandler._packet_handlers,
        FXP_NAME: _process_name,
        FXP_ATTRS: _process_attrs,
    }


async def start_sftp(
    connection: asyncssh.SSHClientConnection, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]
) -> tuple[asyncssh.SFTPClient, LimitedSFTPHandler]:
    """A client of the server at the other end of a channel's streams, and its handler. Raises asyncssh.SFTPError."""
    handler = LimitedSFTPHandler(asyncio.get_running_loop(), reader, writer)
    await handler.start()
    connection.create_task(handler.recv_packets(), handler.logger)
    return asyncssh.SFTPClient(handler, "utf-8", "surrogateescape"), handler


def _is_within_limits(asked: int | bytes | None, kind: int, payload: bytes) -> bool:
    if len(payload) > MAX_SHORT_PACKET and (asked, kind) not in _LONG_ANSWERS:
        return False
    if kind == FXP_NAME:
        return int.from_bytes(payload[_HEADER : _HEADER + 4], "big") <= (MAX_NAMES if asked == FXP_READDIR else 1)
    return True


def _name(packet: SSHPacket) -> asyncssh.SFTPName:
    name = packet.get_string()
    if len(name) > MAX_PATH:
        raise asyncssh.SFTPBadMessage("Name too long")
    packet.get_string()  # the line of `ls -l`
    return asyncssh.SFTPName(name, b"", _attributes(packet))


def _attributes(packet: SSHPacket) -> asyncssh.SFTPAttrs:
    """Without the extended ones, of which any number fits into a packet; OpenSSH's server sends none."""
    flags = packet.get_uint32()
    if flags & ~_KNOWN_FLAGS:
        raise asyncssh.SFTPBadMessage(f"Unsupported attribute flags: 0x{flags:08x}")
    found = asyncssh.SFTPAttrs()
    if flags & FILEXFER_ATTR_SIZE:
        found.size = packet.get_uint64()
    if flags & FILEXFER_ATTR_UIDGID:
        found.uid, found.gid = struct.unpack(">II", packet.get_bytes(8))
    if flags & FILEXFER_ATTR_PERMISSIONS:
        found.permissions = packet.get_uint32()
    if flags & FILEXFER_ATTR_ACMODTIME:
        found.atime, found.mtime = struct.unpack(">II", packet.get_bytes(8))
    return found
