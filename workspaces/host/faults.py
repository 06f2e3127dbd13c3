"""Named points at which a test may end this process or let it wait; inactive unless PLATFORM_FAULTS is set.

`PLATFORM_FAULTS` names a folder. A file `KIND.STEP.kill` there ends the process with SIGKILL once (the file is removed
first); `KIND.STEP.wait` holds the step while the file exists, at most a minute.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from django.conf import settings

MAX_WAIT_SECONDS = 60


def fault_point(kind: str, step: str) -> None:
    """Die or wait here, if a test asks for it: just before a step is carried out, after it was recorded."""
    folder: Path | None = settings.ENV.faults
    if folder is None:
        return
    kill = folder / f"{kind}.{step}.kill"
    if kill.exists():
        kill.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    hold = folder / f"{kind}.{step}.wait"
    until = time.monotonic() + MAX_WAIT_SECONDS
    while hold.exists() and time.monotonic() < until:
        time.sleep(0.05)
