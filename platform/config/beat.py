"""Celery beat's scheduler for a schedule that is complete at its start."""

from __future__ import annotations

from typing import Any

from celery.beat import Scheduler


class FixedScheduler(Scheduler):
    """As Celery's own, in memory: see `beat_scheduler` in celery_settings.py.

    Celery's compares all entries with those of the tick before, for schedules that change while it runs, and wakes up
    10 ms before each task, which it passes in a loop without a sleep. Both together were nine tenths of the processor's
    time that beat used.
    """

    def adjust(self, n: Any, drift: float = 0.0) -> Any:
        """The seconds until the next task, without Celery's 10 ms less."""
        return super().adjust(n, drift)

    def schedules_equal(self, old_schedules: Any, new_schedules: Any) -> bool:
        """The first tick fills the heap whatever this says."""
        return True
