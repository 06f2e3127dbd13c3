"""When a session of the admin ends: so long after the login at the latest, and earlier without a request for some time.

Both are Django's own expiry of a session (`set_expiry` with a time), which its row and its cookie have.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY as USER_KEY
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

# In the session: when it ends at the latest, in seconds since the epoch.
ENDS = "ends"
# A share of the idle time: the end is moved, which writes the session, in steps of it.
STEP = 1 / 20


def begin_session(request: HttpRequest, **_: Any) -> None:
    """Begin both times at a login: a receiver of `user_logged_in`."""
    _begin(request.session)


def move_session_end(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Any:
    """Return middleware of the admin, after that of sessions: a request moves the end of a session without requests."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        session = request.session
        if USER_KEY in session:
            if ENDS not in session:
                _begin(session)  # of an earlier release
            elif _end_of(session) - session.get_expiry_date() >= STEP * _idle_time():
                session.set_expiry(_end_of(session))
        return get_response(request)

    return respond


def _begin(session: SessionBase) -> None:
    session[ENDS] = int(timezone.now().timestamp()) + settings.ENV.admin_session_seconds
    session.set_expiry(_end_of(session))


def _end_of(session: SessionBase) -> datetime:
    return min(datetime.fromtimestamp(session[ENDS], UTC), timezone.now() + _idle_time())


def _idle_time() -> timedelta:
    return timedelta(seconds=settings.ENV.admin_idle_seconds)
