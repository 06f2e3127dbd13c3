"""Hooks: how an app of a lower layer calls one of a higher layer without importing it (docs/architecture.md, Layers).

The lower app owns a `Hook`; higher apps register handlers in their AppConfig.ready. Handlers run in the caller's
transaction, in the order of registration, and their exceptions propagate to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Hook(Generic[P, R]):
    """Handlers of one signature; calling the hook calls all of them and returns their results."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._handlers: list[Callable[P, R]] = []

    def register(self, handler: Callable[P, R]) -> Callable[P, R]:
        """Add a handler. Idempotent. Usable as a decorator."""
        if handler not in self._handlers:
            self._handlers.append(handler)
        return handler

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> list[R]:
        return [handler(*args, **kwargs) for handler in self._handlers]

    def one(self, *args: P.args, **kwargs: P.kwargs) -> R | Any:
        """Return the result of the first handler; None if none is registered."""
        for handler in self._handlers:
            return handler(*args, **kwargs)
        return None
