"""A process that is killed (SIGKILL) while it stores a file (tests/killed_process.py)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from cdn.storage.local import LocalStore

ROOT, MADE, KEY, STEP = "", "", "", 0
CHANGES = {"os.link", "os.rename", "os.mkdir"}


def store_until_death() -> None:
    """The file MADE as KEY in the store ROOT, up to the change of number STEP (from 1) in that folder."""
    count = 0

    def look(event: str, arguments: object) -> None:
        nonlocal count
        if event in CHANGES and "/store/" in str(arguments):
            count += 1
            if count == STEP:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    LocalStore(Path(ROOT)).save(Path(MADE), KEY)
