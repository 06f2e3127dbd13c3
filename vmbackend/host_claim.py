"""Marks that tell this machine from another one with the same host name: a number in its state folder, which no other
machine has, and the boot, which a copy of the folder does not share.
"""

from __future__ import annotations

import secrets
from pathlib import Path

FILE = "host.id"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def host_claim(state: Path) -> str:
    """Return the claim of the machine whose state is in this folder. Its number is made at the first call."""
    return f"{_number(state / FILE)} {BOOT_ID.read_text().strip()}"


def _number(file: Path) -> str:
    known = file.read_text().strip() if file.exists() else ""
    if known:
        return known
    made = secrets.token_hex(8)
    new = file.with_name(f".{FILE}.new")
    new.write_text(made)
    new.replace(file)
    return made
