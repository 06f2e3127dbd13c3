"""How a process loads its code."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def collector_pause() -> None:
    """Until `collector_resume`. What is loaded stays: looking for garbage in it took a quarter of the time."""
    gc.disable()


def collector_resume() -> None:
    """Without what is there now, which no collection reads again, and no write to which copies pages of a fork."""
    gc.freeze()
    gc.enable()


@contextmanager
def collector_paused() -> Iterator[None]:
    collector_pause()
    try:
        yield
    finally:
        collector_resume()
