"""Store on a local disk: `STATE/cdn/store/<key>`, links to files whose bytes never change."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from django.core.files.storage import FileSystemStorage

from cdn.storage.errors import StorageUnavailable
from cdn.storage.interface import StoredBytes
from cdn.storage.keys import checked_key, file_folder
from cdn.storage.places import FILE_MODE, FOLDER_MODE, cdn_folder
from common.content_times import content_time_ns

# A new file has this name beside its final one; no digest begins with a dot.
_UNFINISHED = ".new-"


@lru_cache(maxsize=1)
def _local_store(root: Path) -> LocalStore:
    return LocalStore(root)


def local_store() -> LocalStore:
    """Return the store of the state folder."""
    return _local_store(cdn_folder("store"))


class LocalStore:
    """Store on a disk. A file is stored by a link and a rename, so no reader sees a part of it. Safe for any number of
    processes.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = FileSystemStorage(root)

    def path(self, key: str) -> Path:
        """Return the path at which the edge finds the file. Raise ValueError."""
        checked_key(key)
        return Path(self._files.path(key))

    def save(self, path: Path, key: str) -> None:
        """Store a file. Its modification time is made of the content's hash: the edge makes the ETag of it."""
        target, (_, digest) = self.path(key), checked_key(key)
        with storage_errors():
            _durable(path, content_time_ns(digest))
            _folders_make(self.root, target.parent)
            beside = target.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
            os.link(path, beside, follow_symlinks=False)
            beside.replace(target)
            sync_folder(target.parent)

    def open_local(self, key: str) -> BinaryIO:
        fd = os.open(self.path(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return os.fdopen(fd, "rb")

    def remove(self, key: str) -> None:
        with storage_errors():
            self.path(key).unlink(missing_ok=True)

    def remove_all(self, file_id: str) -> None:
        folder = self.root / file_folder(file_id)
        with storage_errors():
            if folder.is_dir():
                shutil.rmtree(folder)

    def list_files(self) -> Iterator[StoredBytes]:
        now = time.time()
        for folder, _, names in os.walk(self.root):
            for name in names:
                key = f"{Path(folder).relative_to(self.root)}/{name}"
                try:
                    file_id, _ = checked_key(key)
                    found = Path(folder, name).lstat()
                except (ValueError, FileNotFoundError):
                    continue
                yield StoredBytes(file_id, key, found.st_size, max(0.0, now - found.st_ctime))

    def abort_unfinished(self, grace_seconds: float) -> int:
        """Remove links under their first names. A clock that was set back makes them younger, not older."""
        old = [path for path in self.root.rglob(f"{_UNFINISHED}*") if _age(path) >= grace_seconds]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)

    def signed_url(self, key: str, seconds: int, method: str = "GET") -> str:
        return ""

    def problem(self) -> str:
        """Return the problem. Parts and the store must be on one file system, because files are stored by links."""
        try:
            places = [cdn_folder("parts"), cdn_folder("work"), self.root]
            if len({place.stat().st_dev for place in places}) > 1:
                return f"{', '.join(map(str, places))} are not on one file system"
            with tempfile.TemporaryFile(dir=self.root):
                return ""
        except OSError as error:
            return f"{self.root} cannot be written: {error.strerror}"


def _durable(path: Path, time_ns: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(fd, FILE_MODE)
        os.utime(fd, ns=(time_ns, time_ns))
        os.fsync(fd)
    finally:
        os.close(fd)


def _folders_make(root: Path, folder: Path) -> None:
    """Make a folder with its parents below the root, and flush their names."""
    if folder.is_dir():
        return
    if folder.parent != root:
        _folders_make(root, folder.parent)
    folder.mkdir(FOLDER_MODE, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Flush the names in a folder. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _age(path: Path) -> float:
    try:
        return max(0.0, time.time() - path.lstat().st_ctime)
    except FileNotFoundError:
        return 0.0


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise errors of the disk as those of the API; a missing file stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageUnavailable from error
