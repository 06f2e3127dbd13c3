"""Text that came from a guest or a service, made safe for a terminal."""

from __future__ import annotations

import unicodedata

_SPACES = {"\t"}
# Format characters (bidirectional controls, invisible ones), controls, surrogates, line separators.
_ESCAPED = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def printable(text: object) -> str:
    """One line of text: what moves a cursor, changes colours or hides text is written as an escape (`\\x1b`)."""
    return "".join(
        character if character in _SPACES or unicodedata.category(character) not in _ESCAPED else _escape(character)
        for character in str(text)
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def size_text(size: float | None) -> str:
    """Bytes in binary units, for people."""
    if size is None:
        return "?"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
