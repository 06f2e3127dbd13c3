"""Names of an archive that may become paths of a site."""

from __future__ import annotations

import re

# The only folder at the root whose name begins with a dot (RFC 8615).
WELL_KNOWN = ".well-known"
COMPONENT_BYTES = 255
_NO_NAMES = frozenset(("", ".", ".."))
# Beginnings of a path that mean the folder itself, for example `./`.
_FOLDER_ITSELF = re.compile(r"\A(?:\.?/)*(?:\.\Z)?")
_CONTROL_OR_BACKSLASH = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")


class NameRefused(ValueError):
    """Error of a name that is left out; the text says why."""


def entry_path(name: str) -> str:
    """Return the path below the folder for a name of an archive, "" for the folder itself.

    Raise NameRefused. Nothing is resolved: a name with `..` is refused even if it would lead inside.
    """
    if name.startswith("/"):
        raise NameRefused("absolute path")
    path = _FOLDER_ITSELF.sub("", name.removesuffix("/"), count=1)
    if path:
        _check_path(path)
    return path


def _check_path(path: str) -> None:
    """Check a path as a whole. It may have hundreds of components, and an archive may have as many paths as a page
    entries.
    """
    parts = path.split("/")
    if not _NO_NAMES.isdisjoint(parts):
        raise NameRefused("not a plain path")
    if "/." in path or (path.startswith(".") and parts[0] != WELL_KNOWN):
        raise NameRefused("dotfile")
    if reason := _unusable(path):
        raise NameRefused(reason)


def _unusable(path: str) -> str | None:
    """Return why no URL can carry the path, or no file system can hold it."""
    try:
        encoded = path.encode("utf-8")
    except UnicodeEncodeError:
        return "name is not UTF-8"
    if _CONTROL_OR_BACKSLASH.search(path):
        return "name that no URL can carry"
    return "name too long" if max(map(len, encoded.split(b"/"))) > COMPONENT_BYTES else None
