"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from cdn.media import pipeline, sweep


@shared_task
def process_file(file_id: str) -> bool:
    """On the queue `media`: a file's bytes have arrived. Whether there is anything to do, the row says."""
    return pipeline.file_process(file_id)


@shared_task
def process_due() -> int:
    """Celery beat, on the queue `media`: files that no process looks at."""
    return sweep.due_process()


@shared_task
def remove_leftovers() -> int:
    """Celery beat, on the queue `media`: what killed attempts left beside the store."""
    return sweep.leftovers_remove()
