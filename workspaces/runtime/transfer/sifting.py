"""Sifting a tar: entries that may be unpacked are passed on, in headers of our own, others left out and counted.

The archive is a stranger's: nothing in it is trusted, and no more of it than one header and one extension is kept.
"""

from __future__ import annotations

import tarfile
from posixpath import join

from common.errors import DomainError
from workspaces.errors import GuestDiskFull
from workspaces.runtime.transfer.errors import ArchiveInvalid

BLOCK = tarfile.BLOCKSIZE
MAX_ENTRIES = 1_000_000
MAX_EXTENSION = 64 * 1024  # bytes of a long name, or of the fields of an entry
MAX_NAME = 4095
MAX_LINKS = 100_000  # symbolic ones, which are remembered
END = bytes(2 * BLOCK)
_EXTENSIONS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_USED_FIELDS, _SPARSE = (b"path", b"linkpath", b"size"), b"GNU.sparse."
_LENGTH_DIGITS = 7  # of a field
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_WITHOUT_DATA = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)


class Sifter:
    """One archive that comes in pieces. `room`: bytes that all files may have together."""

    def __init__(self, room: int) -> None:
        self.files = self.whole_files = self.skipped = 0
        self._room = room
        self._entries = 0
        self._buffer = bytearray()
        self._left = 0  # bytes of the entry that is read, padding included
        self._kept: bytearray | None = None  # of an extension
        self._is_passed_on = self._is_over = False
        self._extension = (b"", 0)
        self._fields: dict[str, str] = {}
        self._failure: DomainError | None = None
        self._name = ""  # of the entry that is read
        self._links: set[int] = set()

    @property
    def unfinished(self) -> str:
        """The name of the file whose first bytes were passed on, and not its last; empty if there is none."""
        return self._name if self._left and self._is_passed_on and self._kept is None else ""

    def feed(self, data: bytes) -> bytes:
        """Return what the next piece adds to the sifted archive. Raise ArchiveInvalid, GuestDiskFull, after what comes
        before the entry that fails.
        """
        self._require_no_failure()
        self._buffer += data
        out = bytearray()
        try:
            while self._step(out):
                pass
        except DomainError as exc:
            self._failure = exc
            if not out:
                raise
        return bytes(out)

    def finish(self) -> bytes:
        """Return the end of the sifted archive. Raise ArchiveInvalid if the archive's own end is missing."""
        self._require_no_failure()
        if self._left or (self._buffer and not self._is_over):
            raise ArchiveInvalid("The archive ends in the middle of an entry.")
        return END

    def _require_no_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _step(self, out: bytearray) -> bool:
        if self._left:
            return self._take(out)
        if self._is_over:
            self._buffer.clear()
        if len(self._buffer) < BLOCK:
            return False
        header = bytes(self._buffer[:BLOCK])
        del self._buffer[:BLOCK]
        if header.count(0) == BLOCK:
            self._is_over = True
        else:
            self._begin(_parsed(header), out)
        return True

    def _take(self, out: bytearray) -> bool:
        part = self._buffer[: self._left]
        del self._buffer[: len(part)]
        self._left -= len(part)
        if self._kept is not None:
            self._kept += part
        elif self._is_passed_on:
            out += part
        if not self._left:
            self._end_entry()
        return bool(part)

    def _begin(self, entry: tarfile.TarInfo, out: bytearray) -> None:
        if entry.type in _EXTENSIONS:
            if entry.size > MAX_EXTENSION:
                raise ArchiveInvalid("The archive has a name or fields of an entry that are too long.")
            self._extension, self._kept = (entry.type, entry.size), bytearray()
            self._expect(entry.size)
            return
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise ArchiveInvalid(f"The archive has more than {MAX_ENTRIES} entries.")
        size = _with_fields(entry, self._fields)
        self._fields = {}
        self._is_passed_on = self._passes(entry)
        if self._is_passed_on:
            out += _header(entry)
        self._expect(size)

    def _passes(self, entry: tarfile.TarInfo) -> bool:
        name = _plain(entry.name)
        if name == "":  # the folder itself
            return False
        if name is None or not _is_allowed(entry, name) or self._leads_through_link(entry, name):
            self.skipped += 1
            return False
        entry.name = self._name = name
        self._room -= entry.size
        if self._room < 0:
            raise GuestDiskFull("The archive is larger than what is free on the workspace's disk.")
        self.files += entry.type != tarfile.DIRTYPE
        return True

    def _leads_through_link(self, entry: tarfile.TarInfo, name: str) -> bool:
        """Return whether an entry lies behind a link of the archive, or is a hard link to one or behind one. Its depth
        is another one there, and with it the place that it leads to. No program packs such entries.
        """
        if not self._links and entry.type != tarfile.SYMTYPE:
            return False
        *above, own = _hashes(name)
        found = not self._links.isdisjoint(above)
        if entry.type == tarfile.LNKTYPE:
            found = found or not self._links.isdisjoint(_hashes(entry.linkname))
        elif entry.type == tarfile.SYMTYPE and not found:
            self._links.add(own)
            if len(self._links) > MAX_LINKS:
                raise ArchiveInvalid(f"The archive has more than {MAX_LINKS} symbolic links.")
        return found

    def _expect(self, size: int) -> None:
        self._left = -(-size // BLOCK) * BLOCK
        if not self._left:
            self._end_entry()

    def _end_entry(self) -> None:
        if self._kept is not None:
            kind, size = self._extension
            _read_extension(kind, bytes(self._kept[:size]), self._fields)
            self._kept = None
        self.whole_files = self.files


def _parsed(header: bytes) -> tarfile.TarInfo:
    try:
        entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError, OverflowError) as exc:
        raise ArchiveInvalid("The body is no tar, or its entries have other sizes than they say.") from exc
    if not 0 <= entry.size < 1 << 50 or entry.type == tarfile.GNUTYPE_SPARSE:
        raise ArchiveInvalid("The archive has a sparse file, or one of an impossible size.")
    return entry


def _with_fields(entry: tarfile.TarInfo, fields: dict[str, str]) -> int:
    """Give an entry the fields that came before it; return the bytes that follow its header."""
    if _SPARSE.decode() in fields:
        raise ArchiveInvalid("The archive has a sparse file.")
    entry.name = fields.get("path", entry.name)
    entry.linkname = fields.get("linkpath", entry.linkname)
    if "size" in fields:
        if not fields["size"].isascii() or not fields["size"].isdecimal() or len(fields["size"]) > 15:
            raise ArchiveInvalid("The archive has a file of an impossible size.")
        entry.size = int(fields["size"])
    following = 0 if entry.type in _WITHOUT_DATA else entry.size
    entry.size = entry.size if entry.type in _FILES else 0
    return following


def _read_extension(kind: bytes, data: bytes, fields: dict[str, str]) -> None:
    if kind == tarfile.XGLTYPE:
        return
    if kind != tarfile.XHDTYPE:
        name = "path" if kind == tarfile.GNUTYPE_LONGNAME else "linkpath"
        fields[name] = data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        return
    at = 0
    while at < len(data):
        blank = data.find(b" ", at, at + _LENGTH_DIGITS + 1)
        length = data[at:blank] if blank > 0 else b""
        end = at + (int(length) if length.isdigit() else 0)
        name_bytes, equals, value = data[blank + 1 : max(end - 1, 0)].partition(b"=")
        if not equals or end > len(data):
            raise ArchiveInvalid("The archive has fields of an entry that cannot be read.")
        _keep_field(name_bytes, value, fields)
        at = end


def _keep_field(name: bytes, value: bytes, fields: dict[str, str]) -> None:
    """Keep what is used of a field: any number of others may come before an entry, in any number of extensions."""
    if name.startswith(_SPARSE):
        fields[_SPARSE.decode()] = ""
    elif name in _USED_FIELDS:
        fields[name.decode()] = value.decode("utf-8", "surrogateescape")


def _plain(name: str) -> str | None:
    """Return a name without `.` and empty parts; None for one that is not below the folder."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        return None
    plain = join("", *parts)
    return plain if len(plain.encode("utf-8", "surrogateescape")) <= MAX_NAME else None


def _hashes(name: str) -> list[int]:
    """Return a hash of each folder that a name lies in, the outermost first, and of the name itself.

    Each is made of the one before it: those of the texts would cost a long name's length for each of its folders.
    """
    found, hashes = 0, []
    for part in name.split("/"):
        found = hash((found, part))
        hashes.append(found)
    return hashes


def _is_allowed(entry: tarfile.TarInfo, name: str) -> bool:
    """Return whether an entry is a file, a folder, or a link that leads to something below the folder."""
    if entry.type == tarfile.LNKTYPE:
        entry.linkname = _plain(entry.linkname) or ""
        return entry.linkname != ""
    if entry.type == tarfile.SYMTYPE:
        return _leads_inside(name, entry.linkname)
    return entry.type in (*_FILES, tarfile.DIRTYPE)


def _leads_inside(name: str, target: str) -> bool:
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    if not target or target.startswith("/") or "\0" in target or len(target) > MAX_NAME:
        return False
    # Behind another name `..` leads wherever that name does.
    return ".." not in parts[up:] and up <= name.count("/")


def _header(entry: tarfile.TarInfo) -> bytes:
    made = tarfile.TarInfo(entry.name)
    made.type = tarfile.REGTYPE if entry.type in _FILES else entry.type
    made.size, made.linkname, made.mode = entry.size, entry.linkname, entry.mode & 0o7777
    made.mtime = max(0, int(entry.mtime))
    return made.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
