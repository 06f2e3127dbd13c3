"""Outputs of tools are bounded, and say so: a model reads what it is given."""

from __future__ import annotations

import base64
from typing import Literal

MOST_TEXT = 30_000  # characters of one text
MOST_ROWS = 200
MOST_LINE = 2_000  # characters
MOST_LISTED = 60_000  # characters of all texts of a list


def bounded_text(text: str, most: int = MOST_TEXT) -> tuple[str, bool]:
    """The beginning and the end of a long text, with what is missing said between; and whether something is."""
    if len(text) <= most:
        return text, False
    head = text[: most // 2]
    tail = text[-(most - most // 2) :]
    return f"{head}\n[... {len(text) - most} characters left out ...]\n{tail}", True


def bounded_output(content: bytes, *, is_cut: bool) -> tuple[str, Literal["utf-8", "base64"], bool]:
    """Output of a program as bounded text, its encoding, and whether something is left out.

    `is_cut`: it may end within a character. What is no text is in base64, and only the beginning of it.
    """
    text, encoding, _ = text_of(content, has_more=is_cut)
    if encoding == "base64":
        most = MOST_TEXT // 4 * 3
        return base64.b64encode(content[:most]).decode("ascii"), encoding, len(content) > most
    found, is_short = bounded_text(text)
    return found, encoding, is_short


class ListRoom:
    """Room for the texts of a list, whose entries a guest may have given long names."""

    def __init__(self, most: int = MOST_LISTED) -> None:
        self._left = most

    def has_room_for(self, *texts: str | None) -> bool:
        """Takes the room for one more entry; False where there is none, and none is taken."""
        size = sum(len(text) for text in texts if text)
        if size > self._left:
            return False
        self._left -= size
        return True


def text_of(content: bytes, *, has_more: bool) -> tuple[str, Literal["utf-8", "base64"], int]:
    """A part of a file as text where it is UTF-8, else in base64; and how many of its bytes that are.

    With `has_more` a character that is cut at the end is left to the next part.
    """
    for cut in range(4 if has_more and b"\0" not in content else 1):
        part = content[: len(content) - cut]
        if (text := _decoded(part)) is not None and (part or not content):
            return text, "utf-8", len(part)
    return base64.b64encode(content).decode("ascii"), "base64", len(content)


def _decoded(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None
