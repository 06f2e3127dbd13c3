"""Interface of a store that keeps the bytes of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Stored file. `age` in seconds since it was stored; never negative."""

    file_id: str
    key: str
    size: int
    age: float


class Store(Protocol):
    """Store of files. All methods may be repeated after a process died within one. They raise StorageUnavailable."""

    def save(self, path: Path, key: str) -> None:
        """Store the file at `path`, durably.

        The file stays at `path`: the caller removes it when the rows say that it is stored.
        """

    def open_local(self, key: str) -> BinaryIO:
        """Return the bytes of a key, for reading. Raise FileNotFoundError."""

    def remove(self, key: str) -> None:
        """Remove one stored file, such as that of an earlier attempt. Idempotent."""

    def remove_all(self, file_id: str) -> None:
        """Remove everything that is stored of a file."""

    def list_files(self) -> Iterator[StoredBytes]:
        """Yield everything that is stored."""

    def abort_unfinished(self, grace_seconds: float) -> int:
        """Remove the remains of interrupted `save`s, unless they are younger. Return how many there were."""

    def signed_url(self, key: str, seconds: int, method: str = "GET") -> str:
        """Return an address by which the file can be read for this long, by this method; empty if the edge reads the
        disk.
        """

    def problem(self) -> str:
        """Return a sentence that says why the store cannot be written and read; empty if it can."""
