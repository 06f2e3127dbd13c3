"""`X-Request-ID`: the caller's if valid, else generated; on each response, error body and log line (log_context.py)."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar

_current: ContextVar[str] = ContextVar("request_id", default="")
_VALID = re.compile(r"[\x21-\x7e]{1,128}")


def current_request_id() -> str:
    """Return the id of the request being served in this context; empty outside of one."""
    return _current.get()


def begin_request(sent: str | None) -> str:
    """Adopt the caller's id (at most 128 visible ASCII characters), or generate one."""
    value = sent if sent and _VALID.fullmatch(sent) else f"req_{secrets.token_hex(8)}"
    request_id_set(value)
    return value


def request_id_set(value: str) -> None:
    """Set the id for the rest of this context; empty: it serves no request."""
    _current.set(value)
