"""Which names of an archive become paths of a site."""

from __future__ import annotations

import unicodedata

# The only folder at the root whose name begins with a dot (RFC 8615).
WELL_KNOWN = ".well-known"
COMPONENT_BYTES = 255


class NameRefused(ValueError):
    """The name is left out; the text says why."""


def entry_path(name: str) -> str:
    """The path below the folder for a name of an archive, "" for the folder itself.

    Raises NameRefused. Nothing is resolved: a name with `..` is refused even where it would lead inside.
    """
    if name.startswith("/"):
        raise NameRefused("absolute path")
    parts = name.removesuffix("/").split("/")
    while parts and parts[0] in (".", ""):
        parts = parts[1:]
    for place, part in enumerate(parts):
        _check_component(part, first=place == 0)
    return "/".join(parts)


def _check_component(part: str, *, first: bool) -> None:
    if part in ("", ".", ".."):
        raise NameRefused("not a plain path")
    if part.startswith(".") and not (first and part == WELL_KNOWN):
        raise NameRefused("dotfile")
    if reason := _unusable(part):
        raise NameRefused(reason)


def _unusable(part: str) -> str | None:
    """Why no URL can carry the name, or no file system can hold it."""
    try:
        encoded = part.encode("utf-8")
    except UnicodeEncodeError:
        return "name is not UTF-8"
    if "\\" in part or any(unicodedata.category(character) == "Cc" for character in part):
        return "name that no URL can carry"
    return "name too long" if len(encoded) > COMPONENT_BYTES else None
