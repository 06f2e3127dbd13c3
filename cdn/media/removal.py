"""Removal of bytes from a remote store, which may answer slowly or not at all."""

from __future__ import annotations

import logging
import time

from cdn.media.notifications import request_removal
from cdn.models import File
from cdn.states import FileStatus
from cdn.storage import store_file
from cdn.storage.errors import StorageUnavailable
from common.batches import batched

logger = logging.getLogger(__name__)

# A task keeps a place of the worker for at most so long; another task goes on.
SECONDS = 30.0
_BATCH = 100


def stored_remove(file_ids: list[str]) -> int:
    """Remove the stored bytes of files whose rows are gone or rejected. Return for how many files.

    It ends at the first call that the store does not answer: the sweep for bytes without a row removes the others.
    """
    end, removed = time.monotonic() + SECONDS, 0
    for some in batched(file_ids, _BATCH):
        if time.monotonic() >= end:
            request_removal(file_ids[removed:])
            break
        try:
            for file_id in some:
                _remove(file_id)
                removed += 1
        except StorageUnavailable as exc:
            logger.warning("the bytes of %d files could not be removed yet: %s", len(file_ids) - removed, exc.message)
            break
    return removed


def _remove(file_id: str) -> None:
    """Remove the bytes of a file, unless its row has bytes to keep, whatever a task says. Raise StorageUnavailable."""
    if not File.objects.filter(pk=file_id).exclude(status=FileStatus.REJECTED).exists():
        store_file().remove_all(file_id)
