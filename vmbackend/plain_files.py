"""Folders that another host has filled: nothing in them is followed, opened or parsed before it was looked at."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from vmbackend.trees import remove_tree


def require_plain(folder: Path, names: Collection[str]) -> None:
    """Raise ValueError unless the folder has files of these names and nothing else, each of one link; OSError."""
    entries = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(folder)}
    if missing := sorted(set(names) - entries.keys()):
        raise ValueError(f"{missing[0]} is missing")
    if len(entries) != len(set(names)):
        raise ValueError("there are other files besides")
    for name, found in entries.items():
        if not _is_plain(found):
            raise ValueError(f"{name} is not an ordinary file")


def plain_bytes(folder: Path) -> int:
    """Return the bytes that the plain files in a folder occupy; what else is there is removed. Raise OSError."""
    total = 0
    for entry in list(os.scandir(folder)):
        found = entry.stat(follow_symlinks=False)
        if _is_plain(found):
            total += found.st_blocks * 512
        elif not remove_tree(Path(entry.path)):
            raise OSError(errno.ENOTEMPTY, "a folder that another host has filled could not be cleaned", str(folder))
    return total


def read_plain(path: Path, limit: int) -> bytes:
    """Return what a file contains. Raise ValueError unless it is a plain one of at most `limit` bytes; OSError."""
    descriptor = open_plain(path, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{path.name} is too long")
    return content


def read_object(path: Path, limit: int) -> dict[str, Any]:
    """Return the JSON object in a file. Raise ValueError for anything else; OSError."""
    content = read_plain(path, limit)
    try:
        found = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not an object")
    return found


def open_plain(path: Path, flags: int) -> int:
    """Return a descriptor of a file. Raise ValueError unless it is a plain one; OSError."""
    if not os.path.lexists(path):
        raise ValueError(f"{path.name} is missing")
    if not _is_plain(path.lstat()):
        raise ValueError(f"{path.name} is not an ordinary file")
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not _is_plain(os.fstat(descriptor)):
        os.close(descriptor)
        raise ValueError(f"{path.name} is not an ordinary file")
    return descriptor


def take_over(path: Path, mode: int) -> None:
    """Make a file or a folder this process's user's, with this mode. Raise OSError."""
    os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
    path.chmod(mode)


def _is_plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"not a number of JSON: {word}")
