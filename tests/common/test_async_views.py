"""Threads of coroutine views: what a tenant makes long does not delay the platform's own short calls."""

from __future__ import annotations

import asyncio
import threading

import pytest

from common.async_threads import in_body_thread, in_pool_thread, in_render_thread


@pytest.mark.parametrize("occupied", [in_body_thread, in_render_thread])
def test_short_calls_run_while_every_other_thread_is_occupied(occupied) -> None:
    release = threading.Event()

    async def work() -> int:
        waiting = [asyncio.ensure_future(occupied(release.wait, 30)) for _ in range(100)]
        await asyncio.sleep(0.1)
        try:
            return await asyncio.wait_for(in_pool_thread(lambda: 7), 5)
        finally:
            release.set()
            await asyncio.gather(*waiting)

    assert asyncio.run(work()) == 7
