"""Work that follows a commit."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction


def call_after_commit(call: Callable[..., object], *args: object, **options: object) -> None:
    """Call it after the commit of the transaction. What it raises is logged, and the request and other calls go on.

    Django logs such an error under the function's name. A `partial` has none: with it, the error of a call after the
    commit became one of the request.
    """

    def run() -> None:
        call(*args, **options)

    run.__qualname__ = getattr(call, "__qualname__", repr(call))
    transaction.on_commit(run, robust=True)
