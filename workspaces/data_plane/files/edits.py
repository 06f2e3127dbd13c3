"""Replacing texts in a file: all of a request's edits, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workspaces.data_plane.files.errors import EditNotApplicable


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit: `old`, which the file has exactly once, is replaced by `new`."""

    old: str
    new: str


def apply_edits(content: bytes, edits: Sequence[Edit], limit: int) -> bytes:
    """Return the content after all edits, each made to what the one before left. Raise EditNotApplicable, ValueError.

    Texts are compared by their bytes in UTF-8, so the file itself may be of any kind. ValueError: it would get longer
    than `limit` bytes.
    """
    for number, edit in enumerate(edits):
        old, new = edit.old.encode(), edit.new.encode()
        place = content.find(old)
        if place < 0:
            raise EditNotApplicable(details={"edit": number, "reason": "not_found"})
        if content.find(old, place + 1) >= 0:
            raise EditNotApplicable(details={"edit": number, "reason": "found_more_than_once"})
        content = b"".join((content[:place], new, content[place + len(old) :]))
        if len(content) > limit:
            raise ValueError(f"The file would have more than {limit} bytes.")
    return content
