"""The dispatcher of the process `pages`, from the start of its Celery worker to its end.

The library of ACME is imported when it starts: every worker loads this module, at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from certificates.dispatcher import Dispatcher

_dispatcher: Dispatcher | None = None


def is_certificates() -> bool:
    """Whether this process orders certificates."""
    return bool(settings.ENV.role == "pages")


def ordering_start() -> None:
    """Start the dispatcher of this process."""
    global _dispatcher  # noqa: PLW0603 one for each process, by design
    from certificates.dispatcher import Dispatcher

    _dispatcher = Dispatcher()
    _dispatcher.start()


def ordering_end_soon() -> None:
    """Begin no further step; for a signal handler."""
    if _dispatcher is not None:
        _dispatcher.stop_claiming()


def ordering_stop() -> None:
    """Wait for the steps in progress."""
    global _dispatcher  # noqa: PLW0603
    if _dispatcher is not None:
        _dispatcher.stop()
        _dispatcher = None
