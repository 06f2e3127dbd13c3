"""Spans of OpenTelemetry, if PLATFORM_TRACES_ENDPOINT names a collector. Otherwise nothing of it is even imported.

An attribute is an id of the platform, a route's pattern, a method, a status or a code: never what users sent, a token
or an address. A process sends its spans in batches from a thread of its own; if the collector is away or slow, what
has no room in the queue is dropped.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from django.conf import settings

if TYPE_CHECKING:
    from common.trace_export import Traces

# The header of a task's message (W3C Trace Context).
HEADER = "traceparent"
Kind = Literal["internal", "server", "consumer"]


class _Process:
    """The maker of this process's spans; None until the first span, and after the last."""

    lock = threading.Lock()
    traces: Traces | None = None

    @classmethod
    def renew_lock(cls) -> None:
        """Renew the lock in a forked child: a thread that the child does not have may have held it."""
        cls.lock = threading.Lock()


os.register_at_fork(after_in_child=_Process.renew_lock)


def are_on() -> bool:
    """Return whether spans are made."""
    return bool(settings.ENV.traces_endpoint)


@contextmanager
def span(name: str, kind: Kind = "internal", *, parent: str = "", **attributes: str | int) -> Iterator[Any]:
    """Yield a span around the block, below the one of this context; yields None if traces are off.

    `parent`: the `traceparent` that a message came with. An error that leaves the block is named by its class alone.
    """
    traces = _started() if are_on() else None
    if traces is None:
        yield None
        return
    with traces.span(name, kind, parent, attributes) as made:
        yield made


def set_outcome(**attributes: str | int) -> None:
    """Add attributes to the span of this context; `error_type` marks it as failed."""
    if _Process.traces is not None:
        _Process.traces.set_outcome(attributes)


def current_ids() -> tuple[str, str]:
    """Return trace and span of this context, in hexadecimal; empty if there is none."""
    return _Process.traces.current_ids() if _Process.traces is not None else ("", "")


def task_headers(headers: dict[str, Any]) -> None:
    """Add the `traceparent` of this context to the headers of a task that is being sent."""
    traces = _Process.traces
    trace, own = traces.current_ids() if traces is not None else ("", "")
    if traces is not None and trace:
        headers[HEADER] = f"00-{trace}-{own}-{'01' if traces.is_sampled() else '00'}"


def end_sending() -> None:
    """Send what waits, for two seconds at most. At the end of a process."""
    with _Process.lock:
        ended, _Process.traces = _Process.traces, None
    if ended is not None:
        ended.end()


def _started() -> Traces:
    with _Process.lock:
        if _Process.traces is None:
            from common.trace_export import Traces

            _Process.traces = Traces()
        return _Process.traces
