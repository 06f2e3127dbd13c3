"""The context of log lines: the request, the operation and the workspace, on every record of their context.

A request's id goes with the tasks that it sends, as a header of the message, so that one search finds what the api, the
worker and vmhost wrote about it. A thread that code starts by itself has none of these.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from common import traces
from common.request_id import current_request_id, request_id_set

# The header of a task's message.
HEADER = "platform_request_id"

_operation: ContextVar[str] = ContextVar("operation_id", default="")
_workspace: ContextVar[str] = ContextVar("workspace_id", default="")


def set_logged_workspace(workspace_id: str) -> None:
    """Set the workspace of log lines for the rest of this context: a request, a task."""
    _workspace.set(workspace_id)


@contextmanager
def operation_logged(operation_id: str, workspace_id: str) -> Iterator[None]:
    """Let log lines inside name both."""
    operation, workspace = _operation.set(operation_id), _workspace.set(workspace_id)
    try:
        yield
    finally:
        _operation.reset(operation)
        _workspace.reset(workspace)


def begin_context(request_id: str) -> None:
    """Set the context of a new request or task in a thread that may have served another one. An empty id: no request
    caused it.
    """
    request_id_set(request_id)
    _operation.set("")
    _workspace.set("")


def task_headers(headers: dict[str, Any]) -> None:
    """Add the request's id, and the trace, to those of a task that is being sent."""
    if current_request_id():
        headers[HEADER] = current_request_id()
    traces.task_headers(headers)


class LogContextFilter(logging.Filter):
    """A filter that puts `request_id`, `operation_id`, `workspace_id`, `trace_id` and `span_id` on every record, empty
    if there is none; `context`: all but the span's in one text, else `-`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        trace_id, span_id = traces.current_ids()
        ids = {
            "request_id": current_request_id(),
            "operation_id": _operation.get(),
            "workspace_id": _workspace.get(),
            "trace_id": trace_id,
        }
        vars(record).update(ids, span_id=span_id, context=" ".join(filter(None, ids.values())) or "-")
        return True
