"""Contents of an export."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# So many are listed by name; the others are only counted.
SKIPPED_LISTED = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """File of an export: SHA-256 (hexadecimal) and size in bytes."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Entry or line that was left out, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Received:
    """Files by their path below the folder. `skipped` has the first hundred of `skipped_count`.

    `bytes`: the sum of sent contents, also of files that are left out later, and of files that links became. `written`:
    the files that are not links to files of kept releases; equal files are links to each other.
    """

    files: dict[str, ReceivedFile] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    bytes: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    skipped_count: int = 0

    def skip(self, path: str, reason: str) -> None:
        """Note an entry that is left out. Surrogates of undecodable names become escapes."""
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_LISTED:
            self.skipped.append(Skipped(readable_path(path), reason))


def readable_path(path: str) -> str:
    """Return a path below the folder in its one form (no `./` before it, no slash behind), for rows and JSON.

    It is cut after 1,024 characters. Control characters are escaped: PostgreSQL stores no NUL.
    """
    while path.startswith("./"):
        path = path.removeprefix("./").lstrip("/")
    path = path.rstrip("/") or path or "."
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")[:1024]
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)[:1024]
