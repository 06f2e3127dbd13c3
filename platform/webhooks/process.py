"""The process `hooks`: one dispatcher, from the start of its Celery worker to its end.

A worker becomes it by PLATFORM_ROLE=hooks. Celery brings notifications and nothing else, so events are sent also while
Redis is away. What sends is imported here, when it starts: every worker loads this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from webhooks.dispatcher import Dispatcher

_dispatcher: Dispatcher | None = None


def is_hooks() -> bool:
    """Whether this process sends events."""
    return bool(settings.ENV.role == "hooks")


def sending_start() -> None:
    """Start the dispatcher of this process."""
    global _dispatcher  # noqa: PLW0603 one for each process, by design
    from webhooks.dispatcher import Dispatcher

    _dispatcher = Dispatcher(settings.ENV.webhook_threads)
    _dispatcher.start()


def sending_wake() -> None:
    """Something is due. Without effect in any other process."""
    if _dispatcher is not None:
        _dispatcher.wake()


def sending_end_soon() -> None:
    """Begin no further attempt; for a signal handler."""
    if _dispatcher is not None:
        _dispatcher.stop_claiming()


def sending_stop() -> None:
    """Wait for the attempts in flight, longer than one may take. What remains is due again when its lease ends."""
    global _dispatcher  # noqa: PLW0603
    if _dispatcher is not None:
        _dispatcher.stop()
        _dispatcher = None
