"""The format of libvirt's save files, and a pipe that gives libvirt such a file under another definition.

A file is a head of fixed size, the domain's XML with a NUL, a cookie (the CPU as QEMU had it), padding, and QEMU's
stream. libvirt refuses a definition with another UUID beside a file, but loads a file whose XML is replaced.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# Magic, version, bytes of what follows the head, whether it ran, compression, offset of the cookie, 14 spare words.
_HEAD = struct.Struct("=16s19I")
_MAGIC = b"LibvirtQemudSave"
_VERSION = 2
_CHUNK = 1 << 20
# With a pipe of 64 KiB the speed of a load on a busy host depends on how often both ends run.
_PIPE_BYTES = 1 << 20
_POLL_MS = 100
# What a file of another host says of its domain is never used: this stands in its place.
FOREIGN_XML = "<domain/>"
_DESCRIPTION_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class SaveFile:
    """The parts of a save file. `stream_at`: offset of QEMU's stream in bytes; `data`: XML, cookie and padding."""

    xml: str
    cookie: bytes
    stream_at: int

    @property
    def is_foreign(self) -> bool:
        """Return whether it is another host's: only its stream may be loaded, under a definition of this host."""
        return self.xml == FOREIGN_XML


def read_save_file(path: Path) -> SaveFile:
    """Read everything before the stream. Raises ValueError for another format, OSError."""
    with path.open("rb") as file:
        head = file.read(_HEAD.size)
        if len(head) != _HEAD.size:
            raise ValueError("the save file ends within its head")
        magic, version, length, _, compressed, cookie_at, *_ = _HEAD.unpack(head)
        if (magic, version, compressed) != (_MAGIC, _VERSION, 0):
            raise ValueError("not a complete, uncompressed save file of a known version")
        data = file.read(length)
    if len(data) != length:
        raise ValueError("the save file ends within its description")
    xml = data[: cookie_at or None].split(b"\0", 1)[0]
    cookie = data[cookie_at:].rstrip(b"\0") if cookie_at else b""
    return SaveFile(xml.decode(), cookie, _HEAD.size + length)


def forget_description(descriptor: int) -> None:
    """Overwrite what a save file that another host wrote says of its domain: a host would be ruled by it.

    The stream stays where it is. Raises ValueError for another format, OSError.
    """
    head = os.pread(descriptor, _HEAD.size, 0)
    if len(head) != _HEAD.size:
        raise ValueError("the memory ends within its head")
    magic, version, length, _, compressed, *_ = _HEAD.unpack(head)
    if (magic, version, compressed) != (_MAGIC, _VERSION, 0):
        raise ValueError("the memory is not in a known format")
    description = FOREIGN_XML.encode() + b"\0"
    if not len(description) <= length <= _DESCRIPTION_MAX or _HEAD.size + length >= os.fstat(descriptor).st_size:
        raise ValueError("the memory's description has no plausible size")
    plain = _HEAD.pack(_MAGIC, _VERSION, length, 0, 0, 0, *[0] * 14) + description.ljust(length, b"\0")
    if os.pwrite(descriptor, plain, 0) != len(plain):
        raise OSError(errno.EIO, "the memory's description was written in part")


def encode_beginning(xml: str, cookie: bytes) -> bytes:
    """Return what precedes the stream of a save file that libvirt loads with its CPUs stopped or as a flag says."""
    description = xml.encode() + b"\0"
    cookie_at = len(description) if cookie else 0
    data = description + (cookie + b"\0" if cookie else b"")
    return _HEAD.pack(_MAGIC, _VERSION, len(data), 0, 0, cookie_at, *[0] * 14) + data


def checksum_of(path: Path) -> tuple[int, int]:
    """Return the size in bytes and the CRC-32 of a file. Raises OSError."""
    total, size = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            total = zlib.crc32(chunk, total)
            size += len(chunk)
    return size, total


@contextmanager
def replaced_description(source: Path, xml: str, pipe: Path) -> Iterator[None]:
    """Offer the save file `source` with another XML at the named pipe `pipe`, for one reader, during the block.

    Nothing of the memory is copied to a file. The pipe is root's and is removed at the end. Raises OSError, ValueError.
    """
    saved = read_save_file(source)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe, 0o600)
    stopping = threading.Event()
    # For reading and writing: neither end waits for the other to open the pipe.
    target = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    stream = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    writer = threading.Thread(
        target=_pump, args=(encode_beginning(xml, saved.cookie), stream, saved.stream_at, target, stopping)
    )
    try:
        with suppress(OSError):  # a host that allows no larger pipes
            fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        writer.start()
        yield
    finally:
        stopping.set()
        if writer.ident is not None:
            writer.join()
        os.close(target)
        os.close(stream)
        pipe.unlink(missing_ok=True)


def _pump(beginning: bytes, stream: int, offset: int, target: int, stopping: threading.Event) -> None:
    """Write both until the end, or until the reader needs no more."""
    poll = select.poll()
    poll.register(target, select.POLLOUT)
    end = os.fstat(stream).st_size
    while (beginning or offset < end) and not stopping.is_set():
        if not poll.poll(_POLL_MS):
            continue
        with suppress(BlockingIOError):
            if beginning:
                beginning = beginning[os.write(target, beginning) :]
            else:
                offset += os.sendfile(target, stream, offset, _CHUNK)
