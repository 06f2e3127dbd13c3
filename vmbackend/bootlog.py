"""The format of a console log on the host's disk, the same for every driver.

Two files, `boot.log` and the older `boot.log.1`, with a common size limit. Each line begins with the time at which the
host read its first byte: a guest sends no trustworthy time on its console. A guest cannot forge the timestamp: every
line gets one, as does the beginning of each file, and a reader removes exactly one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ")


def timestamp_prefix(moment: datetime | None = None) -> bytes:
    """Return `2026-01-31T12:00:00.000Z ` for now, or for a moment."""
    moment = (moment or datetime.now(UTC)).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").encode() + b"%03dZ " % (moment.microsecond // 1000)


def split_timestamp(line: bytes) -> tuple[str | None, bytes]:
    """Return a line's time and what was written; None if the line has none (its beginning was dropped)."""
    found = _STAMP.match(line)
    return (found[1].decode(), line[found.end() :]) if found else (None, line)


def rotated_path(path: Path) -> Path:
    """Return the path of the older half of a log; it need not exist."""
    return path.with_name(f"{path.name}.1")


def begin_boot_log(path: Path, lines: Sequence[str]) -> None:
    """Write the first lines of a log that does not exist; one that does is left as it is. Raise OSError."""
    if not lines or path.exists():
        return
    aside = path.with_name(f"{path.name}.new")
    now = timestamp_prefix()
    with os.fdopen(os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
        file.writelines(now + line.encode("utf-8", "replace") + b"\n" for line in lines)
    aside.replace(path)


def clear_boot_log(path: Path) -> None:
    """Remove both files. Idempotent. Later output starts a new log."""
    path.unlink(missing_ok=True)
    rotated_path(path).unlink(missing_ok=True)
