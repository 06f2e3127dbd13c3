"""What is mounted on this host."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNTINFO = Path("/proc/self/mountinfo")
# A space, a tab, a line feed and a backslash are octal there; all other bytes are as they are.
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def mount_points() -> list[Path]:
    """Those of this process's mount namespace, in the order in which they were mounted. Raises OSError."""
    rows = _MOUNTINFO.read_bytes().splitlines()
    return [Path(os.fsdecode(_ESCAPED.sub(_byte, row.split(b" ")[4]))) for row in rows]


def _byte(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])
