"""Headers of a hostile tar stream, each bounded before it is read.

The standard library decodes single blocks (`tarfile.TarInfo.frombuf`: 512 bytes, checksum verified). Its own reading of
a stream is not bounded: a PAX or long-name header of any size is read into memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pages.releases.byte_source import ByteSource
from pages.releases.errors import ExportDamaged, ExportLimit
from pages.releases.pax import pax_records
from pages.releases.received import readable_path

BLOCK = tarfile.BLOCKSIZE
# A PAX header may carry attributes besides the names.
PAX_BYTES = 64 * 1024
LINK_BYTES = 4096
# Further maps of an old GNU sparse file, of 21 pieces each.
SPARSE_BLOCKS = 64
_FILES = {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE}
# The size of such entries says nothing about the stream.
_WITHOUT_DATA = {tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE}
_SPECIAL = {tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device", tarfile.FIFOTYPE: "named pipe"}


class EntryKind(Enum):
    """Kinds of entries, by what becomes of them."""

    FILE = "file"
    FOLDER = "folder"
    SYMLINK = "symlink"
    HARD_LINK = "hard link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class TarEntry:
    """Entry of an archive; `size` bytes of data follow in the stream.

    `reason` says what an entry of the kind OTHER is.
    """

    kind: EntryKind
    name: str
    link: str
    size: int
    reason: str = ""


@dataclass(slots=True)
class _Extended:
    """Facts from the headers before an entry."""

    name: str | None = None
    link: str | None = None
    pax: dict[str, str] | None = None


def tar_entries(source: ByteSource, path_bytes: int) -> Iterator[TarEntry]:
    """Yield the entries up to the end of the archive.

    The caller first consumes the data of each entry, without its padding. Raise ExportLimit for a path longer than
    `path_bytes`, ExportDamaged. Memory is bounded by about 200 KiB.
    """
    extended = _Extended()
    while any(block := source.read_exactly(BLOCK)):
        info = _header_of(block)
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            _read_extended(source, info, extended, path_bytes)
        elif info.type == tarfile.XGLTYPE:
            _pax_data(source, info)
            yield TarEntry(EntryKind.OTHER, "", "", 0, "global header")
        else:
            if info.type == tarfile.GNUTYPE_SPARSE:
                _skip_sparse_maps(source, bool(block[482]))
            entry = _entry_of(info, extended, path_bytes)
            extended = _Extended()
            yield entry
            source.skip(-entry.size % BLOCK)


def _header_of(block: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError, OverflowError) as error:
        raise ExportDamaged("A header of the archive is malformed.") from error
    if info.size < 0:
        raise ExportDamaged("A header of the archive has a negative size.")
    return info


def _read_extended(source: ByteSource, info: tarfile.TarInfo, extended: _Extended, path_bytes: int) -> None:
    if info.type == tarfile.GNUTYPE_LONGNAME and extended.name is None:
        extended.name = _long_name(source, info.size, path_bytes)
    elif info.type == tarfile.GNUTYPE_LONGLINK and extended.link is None:
        if info.size > LINK_BYTES + 1:
            raise ExportDamaged("The target of a link is longer than any path.")
        extended.link = _text(_padded(source, info.size))
    elif info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE) and extended.pax is None:
        extended.pax = _pax_data(source, info)
    else:
        raise ExportDamaged("An entry of the archive has two extended headers of one kind.")


def _long_name(source: ByteSource, size: int, path_bytes: int) -> str:
    """Return a long name. A name of `path_bytes` may have `./` in front, a slash behind, and a NUL."""
    if size > path_bytes + 4:
        raise ExportLimit("path_bytes", readable_path(_text(source.read_exactly(path_bytes))))
    return _text(_padded(source, size))


def _pax_data(source: ByteSource, info: tarfile.TarInfo) -> dict[str, str]:
    if info.size > PAX_BYTES:
        raise ExportDamaged("An extended header of the archive is larger than 64 KiB.")
    return pax_records(_padded(source, info.size))


def _padded(source: ByteSource, size: int) -> bytes:
    data = source.read_exactly(size)
    source.skip(-size % BLOCK)
    return data


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _entry_of(info: tarfile.TarInfo, extended: _Extended, path_bytes: int) -> TarEntry:
    """Return the entry. PAX records count before GNU headers, and these before the block itself."""
    pax = extended.pax or {}
    name = pax.get("path", extended.name if extended.name is not None else info.name)
    link = pax.get("linkpath", extended.link if extended.link is not None else info.linkname)
    if len(name.removeprefix("./").rstrip("/").encode("utf-8", "surrogateescape")) > path_bytes:
        raise ExportLimit("path_bytes", readable_path(name))
    if len(link) > LINK_BYTES:
        raise ExportDamaged("The target of a link is longer than any path.")
    size = 0 if info.type in _WITHOUT_DATA else _size(pax, info.size)
    if info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse.") for key in pax):
        return TarEntry(EntryKind.OTHER, name, "", size, "sparse file")
    return TarEntry(_kind_of(info.type), name, link, size, _SPECIAL.get(info.type, "unknown kind of entry"))


def _size(pax: dict[str, str], size: int) -> int:
    given = pax.get("size")
    if given is None:
        return size
    # Twenty digits are more than any stream has; int() of very many takes long.
    if not (given.isascii() and given.isdigit() and len(given) <= 20):
        raise ExportDamaged("A header of the archive has a malformed size.")
    return int(given)


def _kind_of(kind: bytes) -> EntryKind:
    if kind in _FILES:
        return EntryKind.FILE
    names = {
        tarfile.DIRTYPE: EntryKind.FOLDER, tarfile.SYMTYPE: EntryKind.SYMLINK, tarfile.LNKTYPE: EntryKind.HARD_LINK,
    }  # fmt: skip
    return names.get(kind, EntryKind.OTHER)


def _skip_sparse_maps(source: ByteSource, follows: bool) -> None:
    """Skip the maps of an old GNU sparse file: its header says whether another map follows, and so does each map."""
    for _ in range(SPARSE_BLOCKS):
        if not follows:
            return
        follows = bool(source.read_exactly(BLOCK)[504])
    raise ExportDamaged("A sparse file of the archive has too many pieces.")
