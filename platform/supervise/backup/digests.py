"""The hash of each file of a backup: `files.sha256`, a line for each regular file and each symbolic link.

Blocks that are all zeros are not hashed, as a machine's disk is mostly such blocks, in holes that need not be read. So
the hash of a file depends on its content alone, not on where its holes are.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervise.files import write_private

NAME = "files.sha256"
_BLOCK = 1 << 16
_ZEROS = bytes(_BLOCK)


@dataclass(frozen=True, slots=True)
class Digests:
    """Hashes of the files of one backup: path below its folder -> hash. `digest` is the hash of the list itself."""

    files: dict[str, str]
    bytes: int
    digest: str


def write_digests(folder: Path, former: Path | None) -> Digests:
    """Hash every file and link of a backup. Files that share their bytes with `former`'s keep its hash.

    Raise OSError; then there is no list, or the one of a call before.
    """
    known = read_digests(former) if former else {}
    found: dict[str, str] = {}
    total = 0
    for path in _entries(folder):
        name = str(path.relative_to(folder))
        shared = former is not None and name in known and _is_same_file(path, former / name)
        found[name] = known[name] if shared else _digest_of_entry(path)
        total += path.lstat().st_size
    text = "".join(json.dumps([value, name]) + "\n" for name, value in found.items())
    write_private(folder / NAME, text)
    return Digests(found, total, hashlib.sha256(text.encode()).hexdigest())


def read_digests(folder: Path) -> dict[str, str]:
    """Return the digests; empty if there is no list that can be read."""
    try:
        rows = [json.loads(line) for line in (folder / NAME).read_text().splitlines()]
        return {str(name): str(value) for value, name in rows}
    except (OSError, ValueError, TypeError):
        return {}


def damaged_files(folder: Path, digest: str) -> list[str]:
    """Return names of the files that differ from their hashes, are gone, or have none. Reads all. Raise OSError."""
    if hashlib.sha256((folder / NAME).read_bytes()).hexdigest() != digest:
        return [NAME]
    known = read_digests(folder)
    found = {str(path.relative_to(folder)): path for path in _entries(folder)}
    differing = [name for name, path in found.items() if not known.get(name) or _digest_of_entry(path) != known[name]]
    return sorted([*differing, *(known.keys() - found.keys())])


def digest_of(path: Path) -> str:
    """Return SHA-256 of the file's size and of each block of 64 KiB that has more than zeros, with its place."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        found = hashlib.sha256(size.to_bytes(8, "big"))
        for offset in _data_blocks(file.fileno(), size):
            block = os.pread(file.fileno(), _BLOCK, offset)
            if block != _ZEROS[: len(block)]:
                found.update(offset.to_bytes(8, "big"))
                found.update(block)
    return found.hexdigest()


def _data_blocks(descriptor: int, size: int) -> Iterator[int]:
    """Yield the offsets of the blocks that are not in a hole of the file."""
    offset = 0
    while offset < size:
        try:
            begin = os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError:  # a hole up to the end
            return
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        first = max(offset, begin // _BLOCK * _BLOCK)
        yield from range(first, end, _BLOCK)
        offset = first + -(-(end - first) // _BLOCK) * _BLOCK


def _entries(folder: Path) -> Iterator[Path]:
    """Yield all but folders, pipes and sockets: files, links (which release of a page is served), and devices."""
    own = {folder / NAME, folder / "manifest.json"}
    for place, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(place, name)
            mode = path.lstat().st_mode
            if path not in own and not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
                yield path


def _digest_of_entry(path: Path) -> str:
    """Return the hash of a file, or of a link's target name. Empty for a device, which no backup has."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return hashlib.sha256(b"link:" + os.fsencode(path.readlink())).hexdigest()
    return digest_of(path) if stat.S_ISREG(mode) else ""


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except FileNotFoundError:
        return False
