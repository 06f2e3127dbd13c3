"""Paths and entries of the guest's file systems."""

from __future__ import annotations

import stat

import asyncssh

from vmbackend.errors import GuestPathInvalid

from .session import Entry

_MAX_PATH = 4096  # Linux's PATH_MAX
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def check_path(path: str) -> None:
    """Raise GuestPathInvalid for a path that is not absolute or that the kernel would reject."""
    if not path.startswith("/") or "\0" in path:
        raise GuestPathInvalid("A path inside the machine must be absolute and without NUL characters.")
    if len(path.encode("utf-8", "surrogateescape")) >= _MAX_PATH:
        raise GuestPathInvalid("The path is too long.")


def attributes_entry(name: str, path: str, found: asyncssh.SFTPAttrs) -> Entry:
    """Return the entry of these attributes; those that the server omits count as zero."""
    return make_entry(name, path, found.permissions or 0, found.size or 0, found.mtime or 0)


def make_entry(name: str, path: str, mode: int, size: int, modified: int, *, target: str | None = None) -> Entry:
    """Return an entry. `mode` as the kernel has it, with the kind of the entry; `modified` in seconds since the
    epoch.
    """
    kind = _TYPES.get(stat.S_IFMT(mode), "other")
    shown = target if kind == "symlink" else None
    return Entry(name, path, kind, size, stat.S_IMODE(mode), float(modified), shown)
