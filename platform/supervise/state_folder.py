"""The state folder of an instance: under which path it is known, what it may hold, and the modes of its content."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import stat
from pathlib import Path
from typing import Any

from supervise.files import write_private
from vmbackend.modes import restrict_files, restrict_modes

CHOICES = "instance.json"
# A choice that is written once the instance has had a database of its own.
HAD_DATABASE = "had_database"
# While a backup is restored into the folder: until then it is no instance.
RESTORING = "restoring"
PRIVATE = ("run", "log", "static", "keys", "edge")
TRAVERSED = ("machines", "libvirt", "cache", "cache/images", "cache/kit")
# Content that a folder may have before it becomes a state folder: parts of an instance, what its operator puts there,
# what a file system of its own has.
PARTS = frozenset(
    {
        *(*PRIVATE, "machines", "libvirt", "cache", "pages", "cdn", "domains", "acme", "reserve", "first-workspace"),
        "postgres",
        *("lost+found", RESTORING),
        *("settings.env", "secrets.env", "redis-users.acl", "credentials.env", "host.id", CHOICES),
    }
)
_UNFINISHED = re.compile(rf"\.({re.escape(CHOICES)}|secrets\.env|credentials\.env)\.[0-9a-f]+")


def instance_id_of(folder: Path) -> str:
    """Return the id made from the path as it is written: a folder that is moved becomes another instance."""
    return hashlib.sha256(str(folder).encode()).hexdigest()[:6]


def identity_of(folder: Path) -> str:
    """Return the id of the instance in the folder: the one that it has there, as after a restore, else that of its
    path.
    """
    made = read_choices(folder)
    known = str(made.get("id", ""))
    if made.get("state") == str(folder) and re.fullmatch(r"[0-9a-f]{6}", known):
        return known
    return instance_id_of(folder)


def path_as_made(folder: Path) -> Path:
    """Return the path under which the instance in `folder` was made, if `folder` is another way to it (a link).

    Under a second path it would be another instance, with another subnet, in the files of the first.
    """
    made = read_choices(folder)
    for path in (folder, Path(str(made.get("state", folder))), folder.resolve()):
        is_known = str(path) == made.get("state") or instance_id_of(path) == made.get("id")
        if is_known and path.exists() and path.samefile(folder):
            return path
    return folder


def read_choices(folder: Path) -> dict[str, Any]:
    """Return the content of `instance.json`; empty if it cannot be read."""
    try:
        found = json.loads((folder / CHOICES).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def had_database(folder: Path) -> bool:
    """Return whether the instance in the folder has had a database of its own."""
    return read_choices(folder).get(HAD_DATABASE) is True


def record_database(folder: Path) -> None:
    """Record that the instance in the folder has a database of its own. Raise OSError."""
    if not had_database(folder):
        write_private(folder / CHOICES, json.dumps({**read_choices(folder), HAD_DATABASE: True}, indent=2) + "\n")


def foreign_content(folder: Path) -> str | None:
    """Return a name in the folder that shows that it is no state folder, None if it is one or may become one.

    Raise OSError.
    """
    if not folder.exists() or (folder / CHOICES).exists() or is_shared(folder):
        return None
    names = {entry.name for entry in folder.iterdir()} - PARTS
    return min((name for name in names if not _UNFINISHED.fullmatch(name)), default=None)


def is_shared(folder: Path) -> bool:
    """Return whether the folder is sticky (/tmp), and so belongs to more than this instance."""
    return folder.is_dir() and bool(folder.stat().st_mode & stat.S_ISVTX)


def make_folders(folder: Path) -> None:
    """Make the folder and what every command needs in it. Idempotent. Raise OSError."""
    for parent in reversed(folder.parents):
        if not parent.exists():
            parent.mkdir()
            parent.chmod(0o755)
    folder.mkdir(exist_ok=True)
    for name in ("run", "log", "static", "cache"):
        (folder / name).mkdir(exist_ok=True)
    try:
        _set_modes(folder)
    except OSError as error:
        # On a read-only file system, what runs there can still be asked and stopped.
        if error.errno != errno.EROFS:
            raise


def _set_modes(folder: Path) -> None:
    """Give the owner alone all rights, also in a folder of an earlier version: secrets, the database, logs, sockets.

    Traversed, not listed, by others: the way to a machine's own folder, its kernel and its image. Each machine's
    process has a user of its own.
    """
    for name in PRIVATE:
        restrict_modes(folder / name)
    restrict_files(folder)
    for path in (folder, *(folder / name for name in TRAVERSED)):
        if path.is_dir() and not is_shared(path):
            path.chmod(0o711)
