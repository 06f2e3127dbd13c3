"""`X-Request-ID`: the caller's if valid, else generated; on every response, error body and log line."""

from __future__ import annotations

import logging
import re
import secrets
from contextvars import ContextVar

_current: ContextVar[str] = ContextVar("request_id", default="")
_VALID = re.compile(r"[\x21-\x7e]{1,128}")


def current_request_id() -> str:
    """The id of the request being served in this context; empty outside of one."""
    return _current.get()


def begin_request(sent: str | None) -> str:
    """Adopt the caller's id (at most 128 visible ASCII characters), or generate one."""
    value = sent if sent and _VALID.fullmatch(sent) else f"req_{secrets.token_hex(8)}"
    _current.set(value)
    return value


class RequestIdFilter(logging.Filter):
    """Puts `request_id` on every log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = _current.get() or "-"
        return True
