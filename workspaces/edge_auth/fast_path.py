"""The edge's question about a request, answered before Django's own handling, which costs more than the answer.

Only the ordinary answer is given here: the workspace runs. Everything else, trouble included, goes the usual way.
Where the port is open to everybody, the answer is kept for the edge until the second ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.db import DatabaseError, InterfaceError, close_old_connections

from common.errors import DomainError
from edge.route_cache import this_second
from workspaces import last_used
from workspaces.edge_auth.views import UPSTREAM, find_target
from workspaces.route_cache import route_cache

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATH = "/internal/edge/port"


class EdgeAuthFastPath:
    """A WSGI application in front of another one."""

    def __init__(self, inner: WSGIApplication) -> None:
        self._inner = inner
        route_cache().remove_expired()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = environ.get("PATH_INFO") == PATH and environ.get("REQUEST_METHOD") == "GET"
        upstream = _upstream(environ) if asked else ""
        if not upstream:
            return self._inner(environ, start_response)
        start_response("200 OK", [(UPSTREAM, upstream), ("Content-Length", "0")])
        return [b""]


def _upstream(environ: WSGIEnvironment) -> str:
    """Where the request goes; empty where that is not the answer."""
    names = ("HTTP_X_EDGE_SECRET", "HTTP_X_EDGE_HOST", "HTTP_X_FORWARDED_FOR")
    second = this_second()
    try:
        target = find_target(*(environ.get(name, "") for name in names))
    except (DomainError, DatabaseError, InterfaceError):
        return ""
    finally:
        close_old_connections()
    if not target.runs:
        return ""
    last_used.record_request(target.workspace_id)
    if not target.ingress and target.ip:
        route_cache().store(second, _label(environ), target.upstream)
    return target.upstream


def _label(environ: WSGIEnvironment) -> str:
    """The first label of a name that was found: one of the port's."""
    host: str = environ["HTTP_X_EDGE_HOST"]
    return host.partition(".")[0].lower()
