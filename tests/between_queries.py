"""What another request does between two queries of the one under test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from django.db import connection


def done_before(query: str, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Within it, `act` is done once, before the first query that starts so."""
    return _done_once(query, act, after=False)


def done_after(query: str, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Within it, `act` is done once, after the first query that starts so."""
    return _done_once(query, act, after=True)


def _done_once(query: str, act: Callable[[], object], *, after: bool) -> AbstractContextManager[None]:
    left = [act]

    def send(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        due = [left.pop()] if left and sql.startswith(query) else []
        if due and not after:
            due.pop()()
        found = execute(sql, params, many, context)
        if due:
            due.pop()()
        return found

    wrapped: AbstractContextManager[None] = connection.execute_wrapper(send)
    return wrapped
