"""What the worker `media` looks for by itself: files that no task was sent for, and what killed attempts left."""

from __future__ import annotations

import time

from cdn import storage
from cdn.media.pipeline import file_process
from cdn.models import File
from cdn.services.processing import processing_due
from cdn.states import UNFINISHED

# One task does not keep a place of the worker for longer.
SECONDS = 60.0
_BATCH = 500


def due_process() -> int:
    """Process the files that no process looks at, one after the other. Returns how many it processed."""
    end, done = time.monotonic() + SECONDS, 0
    for file_id in processing_due():
        if time.monotonic() >= end:
            break
        done += file_process(file_id)
    return done


def ended_parts_remove() -> int:
    """Remove part files and work folders of files that are published or refused. Returns of how many files.

    Their process died before it could. What belongs to no row at all is `cdn_check`'s.
    """
    there = {part.file_id for part in storage.parts_list()} | set(storage.work_list())
    ended = File.objects.filter(pk__in=sorted(there)[:_BATCH]).exclude(status__in=UNFINISHED)
    found = list(ended.values_list("pk", flat=True))
    for file_id in found:
        storage.part_remove(file_id)
        storage.work_remove(file_id)
    return len(found)
