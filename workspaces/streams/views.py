"""The event stream routes. Asynchronous views; errors before a stream begins are the ordinary ones."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from accounts.authentication import actor_of
from accounts.permissions import RESOURCE_SCOPES, require
from common.connections import release_connection
from common.errors import MethodNotAllowed, ValidationError
from common.responses import field_messages
from common.sse.response import event_stream, last_event_id
from common.sse.runtime import Reader
from workspaces.logs.channels import log_channel
from workspaces.logs.follow import SEED_LINES
from workspaces.logs.guest_address import guest_log_address
from workspaces.logs.serializers import StreamQuery
from workspaces.logs.sources import find_source
from workspaces.requested import requested_workspace
from workspaces.streams.grants import grant_of, revoked_grants
from workspaces.streams.sources import boot_source, guest_source, stats_channel, stats_source


async def stats_stream(request: HttpRequest, workspace_id: str) -> HttpResponseBase:
    """The stats object once a second."""
    _require_get(request)
    return event_stream(await _stats_reader(request, workspace_id))


async def log_stream(request: HttpRequest, workspace_id: str, source: str) -> HttpResponseBase:
    """The last lines of a log, then each new one."""
    _require_get(request)
    return event_stream(await _log_reader(request, workspace_id, source))


def _require_get(request: HttpRequest) -> None:
    if request.method != "GET":
        raise MethodNotAllowed(headers={"Allow": "GET"})


@sync_to_async
def _stats_reader(request: HttpRequest, workspace_id: str) -> Reader:
    actor = require(actor_of(request), RESOURCE_SCOPES)
    workspace = requested_workspace(actor, workspace_id)
    release_connection()
    return Reader(
        channel=stats_channel(workspace.pk),
        source=stats_source(workspace.pk),
        grant=grant_of(actor, workspace),
        revoked=revoked_grants,
        after=last_event_id(request),
        owner=actor.account.pk,
        tail=1,
    )


@sync_to_async
def _log_reader(request: HttpRequest, workspace_id: str, name: str) -> Reader:
    actor = require(actor_of(request), RESOURCE_SCOPES)
    workspace = requested_workspace(actor, workspace_id, whole=True)
    lines = _tail_lines(request)
    source = find_source(workspace, name)
    if not source.is_console:
        guest_log_address(workspace)
    release_connection()
    return Reader(
        channel=log_channel(workspace.pk, source.name),
        source=boot_source(workspace.pk) if source.is_console else guest_source(workspace.pk, source),
        grant=grant_of(actor, workspace),
        revoked=revoked_grants,
        after=last_event_id(request),
        owner=actor.account.pk,
        tail=min(lines, SEED_LINES),
    )


def _tail_lines(request: HttpRequest) -> int:
    query = StreamQuery(data=request.GET)
    if not query.is_valid():
        raise ValidationError(details=field_messages(query.errors))
    lines: int = query.validated_data["tail_lines"]
    return lines
