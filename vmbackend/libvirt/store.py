"""Memory and disks that several machines may be made from: entries that are written once and never changed.

    <machines_dir>/.store/<name>/memory          as libvirt saved it; root's, 0400
                                 disk-0.raw ...  layers of a disk, the lowest first; root's, 0444, linked to by machines
                                 manifest.json   what it needs, its size and checksum, the layers
    <machines_dir>/.store/.incoming-<name>/      files of another host, until they are an entry (`received.py`)

A boot template has memory only (`boot_...`), a snapshot a disk and, unless its machine was off, memory (`snap_...`).

An entry is written beside its place, synced and renamed, so one that has a name is whole. It lies on the machines' file
system.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vmbackend.libvirt.disks import allocated_bytes, sync_file
from vmbackend.libvirt.record import Layer
from vmbackend.libvirt.save_file import checksum_of
from vmbackend.trees import remove_tree

FOLDER = ".store"
FORMAT = 1
_NAME = re.compile(r"[a-z0-9_]{1,90}")
_ASIDE = ".new-"
# Of files of another host, which are kept until they are complete or unwanted.
_INCOMING = ".incoming-"
MANIFEST = "manifest.json"
MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A complete entry. `needs`: what the host must have for its memory to be loaded, as its maker wrote it.

    `made_at`: seconds since the epoch. Without memory both its numbers are 0; `layers` are files in the entry's folder.
    """

    path: Path
    needs: dict[str, Any]
    memory_bytes: int
    memory_crc32: int
    made_at: float
    layers: tuple[Layer, ...] = ()
    disk_mb: int = 0

    @property
    def has_memory(self) -> bool:
        """Return whether there is memory to load."""
        return self.memory_bytes > 0

    @property
    def disk_bytes(self) -> int:
        """Return the bytes that its layers occupy, also those that machines share."""
        return sum(allocated_bytes(self.path / layer.file) for layer in self.layers)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def memory(self) -> Path:
        return self.path / MEMORY

    def is_unchanged(self) -> bool:
        """Return whether the memory is what was written. Reads the whole file."""
        try:
            return checksum_of(self.memory) == (self.memory_bytes, self.memory_crc32)
        except OSError:
            return False


class Store:
    """The entries of one instance. One process writes; several threads may."""

    def __init__(self, machines_dir: Path) -> None:
        self._folder = machines_dir / FOLDER

    def open(self) -> None:
        """Make the folder and remove what a former process had not finished. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for path in self._folder.glob(f"{_ASIDE}*"):
            remove_tree(path)

    def add(self, name: str, needs: dict[str, Any], write_memory: Callable[[Path], None]) -> StoredMemory:
        """Make an entry of the memory that `write_memory` writes at a path. Raises OSError and what that raises.

        On failure nothing is left; an entry of the same name is replaced.
        """
        with self.writing() as aside:
            write_memory(aside / MEMORY)
            return self.publish(aside, name, needs)

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield a new folder for the files of an entry; it is removed at the end unless it was published."""
        aside = self._folder / f"{_ASIDE}{secrets.token_hex(8)}"
        aside.mkdir(mode=0o700)
        try:
            yield aside
        finally:
            if aside.exists():
                remove_tree(aside)

    def incoming(self, name: str) -> Path:
        """Return the folder for files of an entry that come from another host; it need not exist. It stays until it is
        published or dropped.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a name of an entry: {name!r}")
        return self._folder / f"{_INCOMING}{name}"

    def incoming_names(self, prefix: str) -> frozenset[str]:
        """Return the names of entries that begin so, and for which there is such a folder."""
        found = (path.name.removeprefix(_INCOMING) for path in self._folder.glob(f"{_INCOMING}{prefix}*"))
        return frozenset(filter(_NAME.fullmatch, found))

    def drop_incoming(self, name: str) -> bool:
        """Remove such a folder, whatever is in it; return whether nothing is left. Idempotent."""
        return remove_tree(self.incoming(name))

    def publish(
        self,
        aside: Path,
        name: str,
        needs: dict[str, Any],
        layers: tuple[Layer, ...] = (),
        disk_mb: int = 0,
        *,
        made_at: float | None = None,
    ) -> StoredMemory:
        """Make what `writing` yielded, or `incoming` returned, the entry of this name, in place of one that has it.

        `made_at`: None if it is made now. Raises OSError.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a name of an entry: {name!r}")
        memory, size, checksum, written_at = aside / MEMORY, 0, 0, time.time()
        if memory.exists():
            written_at = memory.stat().st_mtime
            memory.chmod(0o400)
            size, checksum = checksum_of(memory)
        made_at = written_at if made_at is None else made_at
        entry = StoredMemory(self._folder / name, needs, size, checksum, made_at, layers, disk_mb)
        facts = {key: value for key, value in asdict(entry).items() if key != "path"}
        (aside / MANIFEST).write_text(json.dumps({"format": FORMAT, **facts}, indent=1))
        for path in (*aside.iterdir(), aside):
            sync_file(path)
        self.remove(name)
        aside.rename(entry.path)
        sync_file(self._folder)
        return entry

    def find(self, name: str) -> StoredMemory | None:
        """Return the entry; None if there is none, or one of another format."""
        path = self._folder / name
        try:
            manifest = json.loads((path / MANIFEST).read_bytes())
            if manifest["format"] != FORMAT:
                return None
            layers = tuple(Layer(**layer) for layer in manifest.get("layers", ()))
            facts = {key: manifest[key] for key in ("needs", "memory_bytes", "memory_crc32", "made_at")}
            return StoredMemory(path=path, layers=layers, disk_mb=manifest.get("disk_mb", 0), **facts)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def names(self, prefix: str) -> frozenset[str]:
        """Return the names of the entries that begin so, readable or not."""
        if not self._folder.is_dir():
            return frozenset()
        found = (entry.name for entry in os.scandir(self._folder))
        return frozenset(name for name in found if name.startswith(prefix) and _NAME.fullmatch(name))

    def names_by_use(self, prefix: str) -> list[str]:
        """Return the name of each entry that begins so, readable or not, the one that was used last first."""
        found = []
        for name in self.names(prefix):
            with suppress(FileNotFoundError):
                found.append(((self._folder / name).stat().st_mtime, name))
        return [name for _, name in sorted(found, reverse=True)]

    def note_use(self, name: str) -> None:
        """Note that an entry was used now. No effect on one that was removed."""
        with suppress(OSError):
            os.utime(self._folder / name)

    def remove(self, name: str) -> None:
        """Remove an entry: its name at once, then its files. Idempotent. A load that has it open goes on."""
        aside = self._folder / f"{_ASIDE}{secrets.token_hex(8)}"
        try:
            (self._folder / name).rename(aside)
        except FileNotFoundError:
            return
        remove_tree(aside)
