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
from typing import Any, NamedTuple

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
)
from asyncssh.packet import SSHPacket
from asyncssh.sftp import SFTPClientHandler

# SFTP version 3 is what OpenSSH's server speaks.
VERSION = 3
MAX_PACKET = 257 * 1024  # OpenSSH's server sends at most 256 KiB
# Every other answer: at most a path in two forms (READLINK).
MAX_SHORT_PACKET = 16 * 1024
MAX_PATH = 4096
_LONG_ANSWERS = ((FXP_READ, FXP_DATA),)
_HEADER = 5  # type and request of an answer
_UINT32 = struct.Struct(">I")
# Each flag's attributes in their order, and the place of the first among size, uid, gid, mode, accessed, modified.
_LAYOUT = (
    (FILEXFER_ATTR_SIZE, struct.Struct(">Q"), 0),
    (FILEXFER_ATTR_UIDGID, struct.Struct(">II"), 1),
    (FILEXFER_ATTR_PERMISSIONS, _UINT32, 3),
    (FILEXFER_ATTR_ACMODTIME, struct.Struct(">II"), 4),
)
# Bytes of the attributes by their flags, which are included; other flags are refused.
_SIZES = {flags: 4 + sum(layout.size for flag, layout, _ in _LAYOUT if flags & flag) for flags in range(16)}


class Attributes(NamedTuple):
    """The attributes of a file; 0 for each that the server left out. `modified`: seconds since the epoch."""

    size: int
    uid: int
    gid: int
    mode: int
    modified: int
    has_owner: bool


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

    async def start(self) -> None:
        """Agree on the protocol's version. Raise asyncssh.SFTPError, also for another version than 3."""
        await super().start()
        if self.version != VERSION:
            raise asyncssh.SFTPBadMessage(f"Unsupported version: {self.version}")
        self._max_packet = MAX_PACKET

    async def recv_packet(self) -> SSHPacket:
        """Return the next answer."""
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

    def _process_name(self, packet: SSHPacket) -> tuple[list[asyncssh.SFTPName], bool]:
        return [asyncssh.SFTPName(_only_name(packet.get_full_payload()))], False

    def _process_attrs(self, packet: SSHPacket) -> asyncssh.SFTPAttrs:
        encoded = packet.get_remaining_payload()
        if len(encoded) < 4 or _attributes_size(encoded, 0) != len(encoded):
            raise asyncssh.SFTPBadMessage("Attributes and packet end at different places")
        found = decode_attributes(encoded)
        owner = {"uid": found.uid, "gid": found.gid} if found.has_owner else {}
        return asyncssh.SFTPAttrs(size=found.size, permissions=found.mode, mtime=found.modified, **owner)

    _packet_handlers: Mapping[int, Any] = {  # type: ignore[assignment]
        **SFTPClientHandler._packet_handlers,
        FXP_NAME: _process_name,
        FXP_ATTRS: _process_attrs,
    }


async def start_sftp(
    connection: asyncssh.SSHClientConnection, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]
) -> asyncssh.SFTPClient:
    """Return a client of the server at the other end of a channel's streams. Raise asyncssh.SFTPError."""
    handler = LimitedSFTPHandler(asyncio.get_running_loop(), reader, writer)
    await handler.start()
    connection.create_task(handler.recv_packets(), handler.logger)
    return asyncssh.SFTPClient(handler, "utf-8", "surrogateescape")


def _is_within_limits(asked: int | bytes | None, kind: int, payload: bytes) -> bool:
    if len(payload) > MAX_SHORT_PACKET and (asked, kind) not in _LONG_ANSWERS:
        return False
    if kind == FXP_NAME:
        return int.from_bytes(payload[_HEADER : _HEADER + 4], "big") == 1
    return True


def _only_name(payload: bytes) -> bytes:
    """Return the path in the answer to READLINK or REALPATH. Directories are not listed by this protocol."""
    try:
        (size,) = _UINT32.unpack_from(payload, _HEADER + 4)
        name = payload[_HEADER + 8 : _HEADER + 8 + size]
        (line,) = _UINT32.unpack_from(payload, _HEADER + 8 + size)  # of `ls -l`
        end = _HEADER + 12 + size + line
        end += _attributes_size(payload, end)
    except struct.error as error:
        raise asyncssh.SFTPBadMessage("Incomplete name") from error
    if size > MAX_PATH or end != len(payload):
        raise asyncssh.SFTPBadMessage("Name too long, or name and packet end at different places")
    return name


def _attributes_size(payload: bytes, place: int) -> int:
    """Return bytes of the attributes at a place, flags included.

    Extended ones are refused: any number of them fits into a packet, and OpenSSH's server sends none.
    """
    (flags,) = _UINT32.unpack_from(payload, place)
    size = _SIZES.get(flags)
    if size is None:
        raise asyncssh.SFTPBadMessage(f"Unsupported attribute flags: 0x{flags:08x}")
    return size


def decode_attributes(encoded: bytes) -> Attributes:
    """Return the attributes of one file; the size of `encoded` was checked."""
    (flags,) = _UINT32.unpack_from(encoded)
    place, values = 4, [0] * 6
    for flag, layout, first in _LAYOUT:
        if flags & flag:
            found = layout.unpack_from(encoded, place)
            values[first : first + len(found)] = found
            place += layout.size
    size, uid, gid, mode, _, modified = values
    return Attributes(size, uid, gid, mode, modified, bool(flags & FILEXFER_ATTR_UIDGID))
