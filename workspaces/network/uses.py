"""Requests to public ports as uses of their workspace. One that lasts is seen by its connection (`check_idle`)."""

from __future__ import annotations

import time

from workspaces.lifecycle import activity

# Redis is told at most so often of one workspace by one process: a request costs no round trip more.
NOTE_SECONDS = 5.0
_MANY = 10_000
_noted: dict[str, float] = {}


def note(workspace_id: str) -> None:
    """The workspace was used now, to within NOTE_SECONDS."""
    now = time.monotonic()
    if now - _noted.get(workspace_id, -NOTE_SECONDS) < NOTE_SECONDS:
        return
    if len(_noted) >= _MANY:
        _noted.clear()
    _noted[workspace_id] = now
    activity.touch(workspace_id)
