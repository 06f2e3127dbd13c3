"""The files by which the edge serves custom domains. Imports no Django.

by-name/<name>   link: to the folder of a page, or to one of `kinds`; without it no request reaches anything
kinds/<kind>     a folder with an empty file of the same name: what the edge does for such a name (KINDS)
tls/<name>       an empty file: a certificate is served, so plain HTTP leads to https
lock             excludes changes of `by-name` by another process
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
NAME = rf"{_LABEL}(?:\.{_LABEL})+"
_NAME = re.compile(rf"(?=.{{3,253}}\Z){NAME}")
_PAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# A workspace's port, found by a question to the platform; `www.<name>`, which leads to `<name>`.
PORT, WWW = "port", "www"
KINDS = (PORT, WWW)


def domains_folder(state: Path) -> Path:
    return state / "domains"


def link_page(page_id: str) -> str:
    """Return the content of the link of a page's domain. Raise ValueError if the id is not that of a page."""
    if not _PAGE_ID.fullmatch(page_id):
        raise ValueError(f"{page_id!r} is not the id of a page.")
    return f"../../pages/by-id/{page_id}"


def link_kind(kind: str) -> str:
    """Return the content of the link of another domain."""
    return f"../kinds/{kind}"


def name_folder(state: Path, name: str) -> Path:
    """Return the path of a name's link, which need not exist. Raise ValueError for what is no name."""
    return domains_folder(state) / "by-name" / _checked(name)


class DomainFiles:
    """Safe for any number of processes of one host. Makes its folders. Raises OSError."""

    def __init__(self, state: Path) -> None:
        self.root = domains_folder(state)
        # The folder belongs to the operator's user, which the edge runs as.
        self.root.mkdir(0o700, parents=True, exist_ok=True)
        for name in ("by-name", "tls", *(f"kinds/{kind}" for kind in KINDS)):
            (self.root / name).mkdir(0o755, parents=True, exist_ok=True)
        for kind in KINDS:
            (self.root / "kinds" / kind / kind).touch()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the links: one process at a time compares and changes them."""
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def link_of(self, name: str) -> str | None:
        """Return the content of the name's link; None if there is none."""
        with suppress(OSError):
            return os.readlink(self._link(name))  # noqa: PTH115 - the text itself
        return None

    def link_set(self, name: str, link: str | None) -> bool:
        """Make, replace or (None) remove the link, by one call of the kernel. False: it was so. Raise ValueError."""
        path = self._link(name)
        if self.link_of(name) == link:
            return False
        if link is None:
            path.unlink(missing_ok=True)
        else:
            beside = self.root / f"new.{secrets.token_hex(8)}"
            beside.symlink_to(link)
            # Relative to the folder that it is moved to.
            beside.replace(path)
        self._sync("by-name")
        return True

    def links(self) -> dict[str, str]:
        """Return every name and what its link holds."""
        found = {}
        for name in os.listdir(self.root / "by-name"):  # noqa: PTH208 - names alone
            with suppress(ValueError):
                if (link := self.link_of(name)) is not None:
                    found[name] = link
        return found

    def remove_rubbish(self) -> list[str]:
        """Remove what a process left that ended within `link_set`. The caller holds the lock."""
        found = sorted(self.root.glob("new.*"))
        for path in found:
            path.unlink(missing_ok=True)
        return [path.name for path in found]

    def tls_names(self) -> set[str]:
        """Return the names with a mark."""
        return set(os.listdir(self.root / "tls"))  # noqa: PTH208 - names alone

    def set_tls(self, name: str, *, present: bool) -> None:
        """Set whether plain HTTP leads to https. Idempotent."""
        path = self.root / "tls" / _checked(name)
        if present:
            path.touch(0o644)
        else:
            path.unlink(missing_ok=True)
        self._sync("tls")

    def _link(self, name: str) -> Path:
        return self.root / "by-name" / _checked(name)

    def _sync(self, folder: str) -> None:
        fd = os.open(self.root / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def is_name(text: str) -> bool:
    """Return whether the edge could have found it by a file."""
    return _NAME.fullmatch(text) is not None


def _checked(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"{name!r} is not a domain.")
    return name
