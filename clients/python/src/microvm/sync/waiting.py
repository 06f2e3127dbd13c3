"""Sleeping, locks and threads: the other side has its own."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread
from time import sleep
from typing import ParamSpec, TypeVar

__all__ = ["Beside", "Lock", "in_thread", "sleep"]

P = ParamSpec("P")
Result = TypeVar("Result")


def in_thread(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Calls it here: this side has a thread of its own already."""
    return function(*args, **kwargs)


class Beside:
    """Work that runs beside its maker's, in a thread that lasts no longer than the program."""

    def __init__(self, work: Callable[[], None]) -> None:
        Thread(target=work, daemon=True).start()

    def end(self) -> None:
        """Waits for nothing: it may wait for what never comes, as a terminal's next line."""
