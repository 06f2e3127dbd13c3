"""Steps of a benchmark: each is printed when it begins, while it goes on and when it ends, and has a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

SHOW_SECONDS = 10.0
T = TypeVar("T")


class Progress:
    """How far a step is: `done` of `total` units."""

    def __init__(self, total: int, unit: str) -> None:
        self.done, self.total, self.unit = 0, total, unit

    def __str__(self) -> str:
        return f"{self.done} of {self.total} {self.unit}"


@asynccontextmanager
async def step(title: str, seconds: float, *, total: int = 1, unit: str = "steps") -> AsyncIterator[Progress]:
    """Within the context a step may last so many seconds. Raises SystemExit, which says how far it came."""
    progress, begun = Progress(total, unit), time.perf_counter()
    print(f"{title} ...", flush=True)
    showing = asyncio.ensure_future(_show_forever(progress))
    try:
        async with asyncio.timeout(seconds):
            yield progress
    except TimeoutError:
        raise SystemExit(f"{title}: not done after {seconds:g} s, {progress}") from None
    finally:
        showing.cancel()
    print(f"  done in {time.perf_counter() - begun:.1f} s", flush=True)


async def _show_forever(progress: Progress) -> None:
    while True:
        await asyncio.sleep(SHOW_SECONDS)
        print(f"  {progress}", flush=True)


def run_steps(steps: Coroutine[Any, Any, T]) -> T:
    """Run them to their end. Raises SystemExit where a connection ends that should not."""
    try:
        return asyncio.run(steps)
    except* ConnectionError as group:
        raise SystemExit(f"a connection ended: {group.exceptions[0]!r}") from None
