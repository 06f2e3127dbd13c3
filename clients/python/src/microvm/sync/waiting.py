"""What waits: the other side has its own."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import sleep
from typing import ParamSpec, TypeVar

__all__ = ["Lock", "in_thread", "sleep"]

P = ParamSpec("P")
Result = TypeVar("Result")


def in_thread(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Calls it here: this side has a thread of its own already."""
    return function(*args, **kwargs)
