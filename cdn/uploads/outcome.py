"""Waiting for the outcome of a file whose bytes have arrived."""

from __future__ import annotations

import asyncio
import time

from cdn.errors import UploadEnded
from cdn.models import File
from cdn.states import UNFINISHED
from common.async_threads import in_pool_thread

# Most pictures take less than a second.
_FIRST_SECONDS, _LONGEST_SECONDS = 0.05, 0.5


async def outcome_of(file_id: str, seconds: float) -> File:
    """Return the file once it is processed, or after this time. Raise UploadEnded if it is gone."""
    until, pause = time.monotonic() + seconds, _FIRST_SECONDS
    while True:
        file = await in_pool_thread(_read, file_id)
        left = until - time.monotonic()
        if file.status not in UNFINISHED or left <= 0:
            return file
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_SECONDS)


def _read(file_id: str) -> File:
    found = File.objects.select_related("namespace").prefetch_related("variants").filter(pk=file_id).first()
    if found is None:
        raise UploadEnded
    return found
