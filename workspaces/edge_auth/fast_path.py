"""Fast path of the edge's authorization requests, before Django's request handling, which costs more than they do.

Only the common case is handled here: the workspace runs. Everything else, errors included, goes through the views. If
the port is open to everyone, the route is cached for the edge until the second ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections

from common.edge_header import VARIABLE, edge_facts
from common.errors import DomainError
from edge.addresses import public_address
from edge.route_cache import this_second
from workspaces import last_used
from workspaces.edge_auth.views import Target, find_target
from workspaces.route_cache import route_cache

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATH = "/internal/edge/port"


class EdgeAuthFastPath:
    """WSGI middleware."""

    def __init__(self, inner: WSGIApplication) -> None:
        self._inner = inner
        route_cache().remove_expired()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        matches = environ.get("PATH_INFO") == PATH and environ.get("REQUEST_METHOD") == "GET"
        target = _running_target(environ) if matches else None
        if target is None:
            return self._inner(environ, start_response)
        start_response("200 OK", [*target.headers.items(), ("Content-Length", "0")])
        return [b""]


def _running_target(environ: WSGIEnvironment) -> Target | None:
    """Return the target of the request; None if the views must handle it."""
    facts = edge_facts(environ.get(VARIABLE, ""), settings.SECRET_KEY)
    if facts is None:
        return None
    second = this_second()
    try:
        target = find_target(facts, environ)
    except (DomainError, DatabaseError, InterfaceError):
        return None
    finally:
        close_old_connections()
    if not target.runs or target.opening:
        return None
    last_used.record_request(target.workspace_id)
    if target.is_open_to_all and target.ip and public_address(settings.PUBLIC_URL).label_of(facts.host):
        # Custom domains are not stored: the edge looks for labels of public ports only.
        route_cache().store(second, facts.host.partition(".")[0].lower(), target.upstream)
    return target
