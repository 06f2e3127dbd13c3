"""A guest's control channel whose SSH server and file server lie, in a process of its own.

    python hostile_server.py FOLDER LIE     writes FOLDER/port when it listens; its host key is FOLDER/host_key

Without a lie it serves the few requests that the tests make: the root directory, and a file of 100,000 bytes at every
other path; each command prints `done`.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh

INIT, VERSION, OPEN, CLOSE, READ, LSTAT, REALPATH, STAT, EXTENDED = (
    1, 2, 3, 4, 5, 7, 16, 17, 200,
)  # fmt: skip
FSTAT = 8
STATUS, HANDLE, DATA, NAME, ATTRS, EXTENDED_REPLY = 101, 102, 103, 104, 105, 201
OK, EOF, NO_SUCH_FILE = 0, 1, 2
EXTENDED_FLAG = 0x80000000
SIZE = 100_000


def text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def attributes(mode: int, size: int = SIZE) -> bytes:
    return struct.pack(">IQIIIII", 0xF, size, 0, 0, mode, 1, 1)


def names(count: int, name: bytes = b"n%d", mode: int = 0o100644) -> bytes:
    entries = [text(name % number) + text(b"") + attributes(mode) for number in range(count)]
    return struct.pack(">I", count) + b"".join(entries)


def many_attributes(count: int) -> bytes:
    return struct.pack(">II", EXTENDED_FLAG, count) + bytes(8) * count


class Files:
    """The file server of one channel."""

    def __init__(self, lie: str) -> None:
        self.lie = lie

    def answer(self, kind: int, body: bytes) -> tuple[int, bytes]:
        if self.lie == "a long status" and kind == STAT:
            return STATUS, struct.pack(">I", 4) + text(b"x" * 200_000) + text(b"")
        if self.lie == "a relative path" and kind in (STAT, LSTAT, REALPATH):
            return self.relative_path(kind, body)
        if kind == REALPATH:
            return NAME, self.real_path()
        if kind in (STAT, LSTAT, FSTAT):
            return ATTRS, self.attributes(body)
        if kind == OPEN:
            return HANDLE, text(b"h")
        if kind == READ:
            return self.read(body)
        if kind == EXTENDED and b"statvfs" in body:
            return EXTENDED_REPLY, struct.pack(">11Q", 4096, 4096, 1000, 500, 500, 100, 50, 50, 0, 0, 255)
        return STATUS, struct.pack(">I", OK) + text(b"") + text(b"")

    def relative_path(self, kind: int, body: bytes) -> tuple[int, bytes]:
        if kind == REALPATH:
            return NAME, names(1, b"%d")
        if kind == LSTAT and body == text(b"/link"):
            return ATTRS, attributes(0o120777)
        return STATUS, struct.pack(">I", NO_SUCH_FILE) + bytes(8)

    def attributes(self, body: bytes) -> bytes:
        if self.lie == "extended attributes":
            return many_attributes(1000)
        return attributes({text(b"/"): 0o40755, text(b"/link"): 0o120777}.get(body, 0o100644))

    def real_path(self) -> bytes:
        if self.lie == "two names":
            return names(2)
        if self.lie == "no name":
            return names(0)
        if self.lie == "an answer of 4 MiB":
            return names(90_000)
        if self.lie == "a name with extended attributes":
            return struct.pack(">I", 1) + text(b"n") + text(b"") + many_attributes(30_000)
        if self.lie == "a name of 8 KiB":
            return names(1, b"/" + b"n" * 8192 + b"%d")
        return names(1, b"/%d")

    def read(self, body: bytes) -> tuple[int, bytes]:
        offset, wanted = struct.unpack(">QI", body[-12:])
        size = max(0, min(wanted, SIZE - offset))
        if self.lie == "more data than requested":
            size = wanted + 1
        if not size:
            return STATUS, struct.pack(">I", EOF) + text(b"") + text(b"")
        return DATA, text(b"x" * size)

    async def serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        while True:
            size = int.from_bytes(await process.stdin.readexactly(4), "big")
            packet = await process.stdin.readexactly(size)
            if packet[0] == INIT:
                process.stdout.write(text(bytes([VERSION]) + self.version()))
                continue
            kind, body = self.answer(packet[0], packet[5:])
            number = b"\xff\xff\xff\xff" if self.lie == "an answer to no request" else packet[1:5]
            process.stdout.write(text(bytes([kind]) + number + body))

    def version(self) -> bytes:
        if self.lie == "version 6":
            return struct.pack(">I", 6)
        extensions = 10_000 if self.lie == "10,000 extensions" else 0
        known = text(b"posix-rename@openssh.com") + text(b"1") + text(b"statvfs@openssh.com") + text(b"2")
        return struct.pack(">I", 3) + known + (text(b"") + text(b"")) * extensions


async def output_of(process: asyncssh.SSHServerProcess[bytes], lie: str) -> bytes:
    """What a command prints: a listing, where it is one."""
    given = await process.stdin.read(int((process.command or "0").rpartition(" ")[2]))
    if b"\0list\0" not in given:
        return b"done\n"
    if lie == "1,000 links":
        after = given.rpartition(b"\0list\0")[2].split(b"\0")[1]
        found = [b"%03d" % number for number in range(1000) if b"%03d" % number > after]
        return b"".join(b"120777 1 1 %b\0%b\0" % (name, b"\xff" * 4000) for name in found)
    name = {"a name with a slash": b"a/b", "a name of 1 KiB": b"n" * 1024, "no name": b""}.get(lie, b"n0")
    return b"100644 3 1 %b\0\0" % name


async def flood_command(process: asyncssh.SSHServerProcess[bytes], lie: str) -> None:
    """Packets without an end, as fast as the client takes them."""
    connection: Any = process.channel.get_connection()
    while connection._transport is not None and not connection._transport.is_closing():
        for _ in range(200):
            if lie == "output in single bytes":
                process.stdout.write(b"x")
            else:
                connection.send_packet(2, text(b""))
        if lie == "output in single bytes":
            await process.stdout.drain()
        while connection._transport is not None and connection._transport.get_write_buffer_size() > 1 << 18:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)


async def handle(process: asyncssh.SSHServerProcess[bytes], lie: str) -> None:
    command = process.command or ""
    with suppress(asyncio.IncompleteReadError, OSError, asyncssh.Error):
        if "sftp-server" in command:
            await Files(lie).serve(process)
        elif lie in ("output in single bytes", "ignored packets"):
            await flood_command(process, lie)
        elif lie == "a refusal with control characters":
            process.stderr.write(b"guest: no \0\x1b[2J\r such \xe2\x80\xa8 program\n")
            process.exit(127)
        else:
            process.stdout.write(await output_of(process, lie))
            process.exit(0)


class Server(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


async def listen(folder: Path, lie: str) -> None:
    options: dict[str, Any] = {}
    if lie == "a slow key exchange":
        options["kex_algs"] = ["diffie-hellman-group18-sha512"]
    if lie == "packets of one byte":
        options["max_pktsize"] = 1
    listener = await asyncssh.listen(
        "127.0.0.1",
        0, server_factory=Server, server_host_keys=[str(folder / "host_key")], encoding=None,
        process_factory=lambda process: handle(process, lie), line_editor=False, **options,
    )  # fmt: skip
    (folder / "port.new").write_text(str(listener.get_port()))
    (folder / "port.new").rename(folder / "port")
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    if sys.argv[2]:
        os.nice(19)  # what it costs itself is not the question
    asyncio.run(listen(Path(sys.argv[1]), sys.argv[2]))
