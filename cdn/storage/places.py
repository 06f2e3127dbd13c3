"""Folders of the CDN below `STATE/cdn`, all on one file system, so that files move by renames and links.

parts/<file_id>   received bytes of an upload
work/<file_id>/   files that are made while a file is processed
store/            the local store (cdn/storage/local.py)
live/             links by which the edge delivers (cdn/delivery/links.py)
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from cdn.storage.errors import StorageUnavailable
from cdn.storage.keys import checked_id

FOLDER_MODE = 0o700
FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class WorkFound:
    """Work folder. `age`: seconds since something was made in it; never negative."""

    file_id: str
    age: float


def require_room(place: Path | int, more: int = 0) -> None:
    """Raise StorageUnavailable if the disk of a folder or an open file has less than `more` bytes besides the host's
    reserve.

    The reserve is for the database and logs. Raise OSError.
    """
    found = os.statvfs(place)
    if found.f_bavail * found.f_frsize < (settings.ENV.disk_reserve_mb << 20) + more:
        raise StorageUnavailable


def cdn_folder(name: str) -> Path:
    """Return one of the folders, made if it is missing. Raise OSError."""
    path = Path(settings.STATE) / "cdn" / name
    path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    return path


def part_path(file_id: str) -> Path:
    """Return the path of an upload's part file, which may not exist. Raise ValueError, OSError."""
    return cdn_folder("parts") / checked_id(file_id)


def work_folder(file_id: str) -> Path:
    """Return an empty folder of this file for one attempt of its processing; remains of an earlier one are removed.

    Raise ValueError, OSError.
    """
    remove_work(file_id)
    path = cdn_folder("work") / checked_id(file_id)
    path.mkdir(FOLDER_MODE)
    return path


def remove_work(file_id: str) -> None:
    """Remove the work folder of a file. Idempotent. Raise ValueError, OSError."""
    path = cdn_folder("work") / checked_id(file_id)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)


def list_work() -> Iterator[WorkFound]:
    """Yield every work folder, for sweeps; other files are left out."""
    now = time.time()
    for entry in os.scandir(cdn_folder("work")):
        with suppress(FileNotFoundError, ValueError):
            found = entry.stat(follow_symlinks=False)
            yield WorkFound(checked_id(entry.name), max(0.0, now - found.st_mtime))
