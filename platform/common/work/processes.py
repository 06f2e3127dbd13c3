"""Parts of a Celery worker beside its tasks, from its start to its end: an app's module `process` has it as `PROCESS`.

A worker becomes one by PLATFORM_ROLE; several apps may have a part in a role. Every worker loads these modules
(config/celery.py), so what the work itself needs is imported where it begins.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from common.work.dispatcher import Dispatcher


class WorkerProcess(Protocol):
    """An app's part in the workers of `role`. `loads`: modules that are loaded before any part of the role begins, so
    that they are of this process's version also if its code is replaced before it ends.
    """

    role: str
    loads: tuple[str, ...]

    def begin(self) -> None:
        """Begin when the worker starts, before its first task. An exception ends the process."""

    def end_soon(self) -> None:
        """Begin nothing more; called in the handler of SIGTERM. Return at once."""

    def end(self) -> None:
        """End when the worker stops; also if it has not begun."""


class DispatcherProcess:
    """One dispatcher for each process of a role. `build` is called when it starts."""

    loads: tuple[str, ...] = ()

    def __init__(self, role: str, build: Callable[[], Dispatcher[Any]]) -> None:
        self.role = role
        self._build = build
        self._dispatcher: Dispatcher[Any] | None = None

    def begin(self) -> None:
        """Start the dispatcher. Raise what the database raises."""
        self._dispatcher = self._build()
        self._dispatcher.start()

    def wake(self) -> None:
        """Wake the process: something is due. Without effect in any other process."""
        if self._dispatcher is not None:
            self._dispatcher.wake()

    def end_soon(self) -> None:
        """Begin nothing more."""
        if self._dispatcher is not None:
            self._dispatcher.stop_claiming()

    def end(self) -> None:
        """Wait for what is in flight. Work that remains is due again when its lease ends."""
        if self._dispatcher is not None:
            self._dispatcher.stop()
            self._dispatcher = None


@contextmanager
def ending_in_order(end: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM call `end` also before Celery has its own handler, which comes after the worker has begun its work.

    Within the block the signal waits.
    """
    is_open = is_asked = is_ending = False

    def handle(*_: object) -> None:
        nonlocal is_asked, is_ending
        is_asked = True
        if is_open and not is_ending:  # another signal, while it ends, must not begin again
            is_ending = True
            end()
            raise SystemExit(0)

    signal.signal(signal.SIGTERM, handle)
    yield
    is_open = True
    if is_asked:
        handle()
