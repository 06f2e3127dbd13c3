"""The task of the queue `media`."""

from __future__ import annotations

from celery import shared_task

from cdn.media import pipeline

QUEUE = "media"


@shared_task(name="cdn.process_file", queue=QUEUE)
def process_file(file_id: str) -> bool:
    """A wake-up: whether there is anything to do, the row says."""
    return pipeline.file_process(file_id)
