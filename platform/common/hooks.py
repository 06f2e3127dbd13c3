"""How a lower room tells a higher one something without importing it (docs/architecture.md, Floors).

The lower room owns a `Hook`; higher rooms register in their AppConfig.ready. Handlers run in the caller's transaction,
in the order of registration, and their exceptions reach the caller: a hook is a call, not a broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Hook(Generic[P, R]):
    """A list of handlers of one signature."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._handlers: list[Callable[P, R]] = []

    def register(self, handler: Callable[P, R]) -> Callable[P, R]:
        """Add a handler once; registering it again changes nothing."""
        if handler not in self._handlers:
            self._handlers.append(handler)
        return handler

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> list[R]:
        return [handler(*args, **kwargs) for handler in self._handlers]

    def one(self, *args: P.args, **kwargs: P.kwargs) -> R | Any:
        """The first handler's answer; None where nobody registered."""
        for handler in self._handlers:
            return handler(*args, **kwargs)
        return None
