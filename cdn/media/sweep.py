"""Sweeps of the worker `media`: files that no task was sent for, and remains of killed attempts."""

from __future__ import annotations

import time

from cdn import storage
from cdn.media.pipeline import file_process
from cdn.models import File
from cdn.services.processing import processing_due
from cdn.states import UNFINISHED
from common.batches import batched

# A task keeps a place of the worker for at most so long.
SECONDS = 60.0
_BATCH = 500


def next_process() -> bool:
    """Process the next file in turn among those that no process works on. Return False if there is none."""
    return any(file_process(file_id) for file_id in processing_due())


def due_process() -> int:
    """Process the files that no process works on, one after the other. Return how many."""
    end, done = time.monotonic() + SECONDS, 0
    while time.monotonic() < end and next_process():
        done += 1
    return done


def ended_parts_remove() -> int:
    """Remove part files and work folders of files that are published or rejected. Return for how many files.

    Their process died before it could. `cdn_check` removes parts without a row.
    """
    there = {part.file_id for part in storage.list_parts()} | {work.file_id for work in storage.list_work()}
    removed = 0
    for some in batched(sorted(there), _BATCH):
        for file_id in File.objects.filter(pk__in=some).exclude(status__in=UNFINISHED).values_list("pk", flat=True):
            storage.remove_part(file_id)
            storage.remove_work(file_id)
            removed += 1
    return removed
