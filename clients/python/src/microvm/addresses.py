"""Parts of addresses."""

from __future__ import annotations

from urllib.parse import quote


def quoted(part: str | int) -> str:
    """One segment of a path: what a caller gives stays in its segment. Raises ValueError for an empty one."""
    if part in ("", ".", ".."):
        raise ValueError(f"{part!r} names nothing.")
    return quote(str(part), safe="")
