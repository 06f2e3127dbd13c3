"""Archives as a guest may send them: honest ones by the standard library, others block by block."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pages.releases.export import export_receive
from pages.releases.limits import ExportLimits
from pages.releases.received import Received

END = bytes(1024)
LIMITS = ExportLimits()


def header(
    name: str | bytes, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "", *, field: bytes | None = None
) -> bytes:
    """One block; `field` replaces the size field as it is."""
    raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
    block = bytearray(512)
    block[: len(raw[:100])] = raw[:100]
    block[100:108], block[108:116], block[116:124] = b"0000777\0", b"0000000\0", b"0000000\0"
    block[124:136] = field if field is not None else tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[157 : 157 + len(link.encode()[:100])] = link.encode()[:100]
    block[257:265] = b"ustar\x0000"
    return with_checksum(block)


def with_checksum(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def entry(name: str | bytes, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    return header(name, len(data), kind, link) + padded(data)


def record(key: str, value: bytes) -> bytes:
    body = b" " + key.encode() + b"=" + value + b"\n"
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


def pax(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return entry("pax", records, kind)


def long_name(name: bytes, kind: bytes = tarfile.GNUTYPE_LONGNAME) -> bytes:
    return entry("././@LongLink", name + b"\0", kind)


def archive_of(files: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    """As `tar -C folder -cf - .` makes it, with its folders."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        folders = {"."} | {f"./{parent}" for name in files for parent in Path(name).parents if str(parent) != "."}
        for folder in sorted(folders):
            info = tarfile.TarInfo(folder)
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        for name, data in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def receive(
    stream: bytes | Iterator[bytes], folder: Path, limits: ExportLimits = LIMITS, **more: dict[str, str]
) -> Received:
    """Into a new folder."""
    folder.mkdir(parents=True)
    with opened(folder) as fd:
        return export_receive(io.BytesIO(stream) if isinstance(stream, bytes) else stream, fd, limits, **more)


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder; links and what else may be there fail."""
    found = {}
    for path in folder.rglob("*"):
        assert not path.is_symlink()
        assert path.is_file() or path.is_dir()
        if path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


class Endless:
    """A stream that begins as given and goes on for ever; counts what was read."""

    def __init__(self, beginning: bytes, then: Callable[[int], bytes] = bytes) -> None:
        self._beginning = io.BytesIO(beginning)
        self._then = then
        self.sent = 0

    def read(self, size: int, /) -> bytes:
        data = self._beginning.read(size) or self._then(size)
        self.sent += len(data)
        return data
