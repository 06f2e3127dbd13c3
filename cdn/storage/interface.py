"""The interface of what keeps the bytes of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """`age` in seconds since it was stored; never negative."""

    file_id: str
    key: str
    size: int
    age: float


class Store(Protocol):
    """All methods may be repeated after a process died within one. They raise StorageUnavailable."""

    def save(self, path: Path, key: str) -> None:
        """Store the file at `path`, durably. It stays where it is: the caller removes it when the rows say that it is
        stored."""

    def open_local(self, key: str) -> BinaryIO:
        """Its bytes, for reading. Raises FileNotFoundError."""

    def remove(self, key: str) -> None:
        """One stored file, such as that of an earlier attempt. Idempotent."""

    def remove_all(self, file_id: str) -> None:
        """Everything that is stored of a file."""

    def list_files(self) -> Iterator[StoredBytes]:
        """Everything that is stored."""

    def abort_unfinished(self, grace_seconds: float) -> int:
        """Remove what interrupted `save`s left, unless it is younger. Returns how many there were."""

    def signed_url(self, key: str, seconds: int, method: str = "GET") -> str:
        """An address by which it can be read for this long, by this method; empty where the edge reads the disk."""

    def problem(self) -> str:
        """What is wrong with it, in a sentence; empty: it can be written and read."""
