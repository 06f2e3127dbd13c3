"""Tasks that store how far they are before the process of their server ends. Imports no Django."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_tasks: set[asyncio.Task[Any]] = set()


@contextmanager
def cancelled_at_stop() -> Iterator[None]:
    """Cancel the current task when its server stops; it gets some time for what it does then."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("Only a task can be cancelled.")
    _tasks.add(task)
    try:
        yield
    finally:
        _tasks.discard(task)


async def cancel_tasks(seconds: float) -> None:
    """Cancel the tasks, when the server does not take requests any more."""
    tasks = set(_tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)
