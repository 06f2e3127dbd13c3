"""Memory that several machines may be loaded from: entries that are written once and never changed.

    <machines_dir>/.store/<name>/memory          as libvirt saved it; root's, 0400
                                 manifest.json   what it needs, its size and checksum

An entry is written beside its place, synced and renamed, so one that has a name is whole. It lies on the machines' file
system.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmbackend.libvirt.save_file import checksum_of
from vmbackend.trees import remove_tree

FOLDER = ".store"
_FORMAT = 1
_NAME = re.compile(r"[a-z0-9_]{1,80}")
_ASIDE = ".new-"


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A complete entry. `needs`: what the host must have for its memory to be loaded, as its maker wrote it.

    `made_at`: seconds since the epoch.
    """

    path: Path
    needs: dict[str, Any]
    memory_bytes: int
    memory_crc32: int
    made_at: float

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def memory(self) -> Path:
        return self.path / "memory"

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
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a name of an entry: {name!r}")
        aside = self._folder / f"{_ASIDE}{secrets.token_hex(8)}"
        aside.mkdir(mode=0o700)
        try:
            write_memory(aside / "memory")
            (aside / "memory").chmod(0o400)
            size, checksum = checksum_of(aside / "memory")
            made_at = time.time()
            facts = {"needs": needs, "memory_bytes": size, "memory_crc32": checksum, "made_at": made_at}
            manifest = {"format": _FORMAT, **facts}
            (aside / "manifest.json").write_text(json.dumps(manifest, indent=1))
            for path in (aside / "memory", aside / "manifest.json", aside):
                _sync(path)
            self.remove(name)
            aside.rename(self._folder / name)
            _sync(self._folder)
        except BaseException:
            remove_tree(aside)
            raise
        return StoredMemory(self._folder / name, needs, size, checksum, made_at)

    def find(self, name: str) -> StoredMemory | None:
        """Return the entry; None if there is none, or one of another format."""
        path = self._folder / name
        try:
            manifest = json.loads((path / "manifest.json").read_bytes())
            if manifest["format"] != _FORMAT:
                return None
            facts = (manifest[key] for key in ("needs", "memory_bytes", "memory_crc32", "made_at"))
            return StoredMemory(path, *facts)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def names_by_use(self) -> list[str]:
        """Return the name of each entry, readable or not, the one that was used last first."""
        found = [entry for entry in os.scandir(self._folder) if _NAME.fullmatch(entry.name)]
        return [entry.name for entry in sorted(found, key=lambda entry: entry.stat().st_mtime, reverse=True)]

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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
