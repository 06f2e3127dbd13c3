"""Named points at which a test may end this process or let it wait; silent unless PLATFORM_FAULTS is set.

`PLATFORM_FAULTS` names a folder. A file `KIND.STEP.kill` there ends the process with SIGKILL once (the file is removed
first); `KIND.STEP.wait` holds the step while the file exists, at most a minute.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MAX_WAIT_SECONDS = 60


def point(kind: str, step: str) -> None:
    """Reached just before a step is carried out, after it was recorded."""
    folder = os.environ.get("PLATFORM_FAULTS")
    if not folder:
        return
    kill = Path(folder) / f"{kind}.{step}.kill"
    if kill.exists():
        kill.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    hold = Path(folder) / f"{kind}.{step}.wait"
    until = time.monotonic() + MAX_WAIT_SECONDS
    while hold.exists() and time.monotonic() < until:
        time.sleep(0.05)
