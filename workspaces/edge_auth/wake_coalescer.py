"""Coalescing of wakes: one thread of this process waits for a workspace, for all requests that need it."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from django.db import connections

from common.async_threads import in_context
from common.errors import DomainError, VMUnavailable
from workspaces import power
from workspaces.models import Workspace

logger = logging.getLogger(__name__)

WAKE_SECONDS = 60.0
# Workspaces that this process wakes at a time; further ones are queued.
MAX_WAKES = 16


class WakeCoalescer:
    """Wakes of one event loop."""

    def __init__(self) -> None:
        self._waking: dict[str, asyncio.Task[bool]] = {}
        self._threads = ThreadPoolExecutor(max_workers=MAX_WAKES, thread_name_prefix="wake")

    async def ensure_running(self, workspace_id: str) -> bool:
        """Return True once the workspace runs, or False if it did not wake in time. A caller that is cancelled does not
        cancel the wake.

        Raise what `power.ensure_running` raises, and VMUnavailable for a deleted workspace.
        """
        task = self._waking.get(workspace_id)
        if task is None:
            task = asyncio.create_task(self._wake(workspace_id))
            self._waking[workspace_id] = task
            task.add_done_callback(lambda done: self._finish(workspace_id, done))
        return await asyncio.shield(task)

    async def _wake(self, workspace_id: str) -> bool:
        return await in_context(self._threads, _wait, workspace_id)

    def _finish(self, workspace_id: str, task: asyncio.Task[bool]) -> None:
        self._waking.pop(workspace_id, None)
        # Retrieved, so that the loop does not report an error without a waiting caller.
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, DomainError):
            logger.error("%s could not be woken", workspace_id, exc_info=error)


def _wait(workspace_id: str) -> bool:
    try:
        found = Workspace.objects.select_related("account__plan", "host", "namespace").filter(pk=workspace_id).first()
        if found is None:
            raise VMUnavailable
        return power.ensure_running(found, WAKE_SECONDS)
    finally:
        connections.close_all()


@lru_cache(maxsize=1)
def wake_coalescer() -> WakeCoalescer:
    """Return the coalescer of this process."""
    return WakeCoalescer()
