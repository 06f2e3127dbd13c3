"""Entries of the beat schedule. Imported by beat, without Django's apps."""

from __future__ import annotations

from typing import Any

# A task that waits longer than this share of its period is dropped before its next turn: an outage leaves no queue.
LIVES = 0.9

Schedule = dict[str, dict[str, Any]]


def run_every(seconds: float, task: str, *, queue: str | None = None, lives: float = LIVES) -> dict[str, Any]:
    """Return the entry of a task that is sent once in `seconds`, to the worker's queue unless another is named."""
    options: dict[str, Any] = {"expires": seconds * lives}
    if queue is not None:
        options["queue"] = queue
    return {"task": task, "schedule": float(seconds), "options": options}
