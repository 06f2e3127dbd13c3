"""Headers that a service gives to the response of the request being served, whatever view makes it."""

from __future__ import annotations

from contextvars import ContextVar

from django.http.response import HttpResponseBase

_added: ContextVar[dict[str, str] | None] = ContextVar("response_headers", default=None)


def begin_response_headers() -> None:
    """Begin the headers of a request's response. The dictionary is shared with the threads and tasks that it begins."""
    _added.set({})


def add_response_header(name: str, value: str) -> None:
    """Add a header to the response; without effect outside of a request (a task, a sweep)."""
    added = _added.get()
    if added is not None:
        added[name] = value


def write_response_headers(response: HttpResponseBase) -> None:
    """Write the headers at the end of a request."""
    for name, value in (_added.get() or {}).items():
        response[name] = value
