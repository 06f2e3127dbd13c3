"""Check of code assistance for `manage.py doctor`: whether the configured model's server answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings

from assist.errors import GenerationFailed
from assist.requests import configured_endpoint

NAME = "model of code assistance"
FIX = "set PLATFORM_ASSIST_URL and PLATFORM_ASSIST_MODEL, then `manage.py assist_check` (docs/code-assistance.md)"
SECONDS = 3.0
Line = tuple[str, bool, str, str]


def doctor_lines() -> Iterator[Line]:
    """Yield name, whether it is as it should be, message and fix of each check. No model is needed: an installation
    without one is complete.
    """
    if not settings.ENV.assist_url and not settings.ENV.assist_model:
        yield NAME, True, "no model is configured: calls answer GENERATION_FAILED", ""
        return
    try:
        url = configured_endpoint().url
    except GenerationFailed as exc:
        yield NAME, False, exc.message, FIX
        return
    yield reachable_line(url)


def reachable_line(url: str) -> Line:
    """Return the line on the model's server. Only a connection is opened: a question may take a minute, or cost
    something.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=SECONDS).close()
    except OSError as exc:
        return NAME, False, f"{parts.hostname}:{port} cannot be reached ({exc.strerror or exc})", FIX
    return NAME, True, f"{parts.hostname}:{port} accepts connections; `manage.py assist_check` asks a question", ""
