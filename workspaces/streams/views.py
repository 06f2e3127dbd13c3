"""The event stream routes. Errors before a stream begins are ordinary error responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.authentication import BaseAuthentication

from accounts.actors import Actor
from accounts.authentication import ApiRequest
from common.async_threads import in_request_thread
from common.async_views import AsyncViewSet
from common.openapi import refused
from common.requests import validated_query
from common.sse.response import event_stream, last_event_id
from common.sse.runtime import Reader
from workspaces.errors import WorkloadNotFound
from workspaces.grants import grant_of, revoked_grants
from workspaces.logs.channels import log_channel, output_of_entry
from workspaces.logs.follow import SEED_LINES
from workspaces.logs.guest_address import guest_log_address
from workspaces.logs.serializers import StreamQuery
from workspaces.logs.sources import LogSource, find_source, workload_sources
from workspaces.models import Workspace
from workspaces.requested import requested_workspace
from workspaces.streams.host_notices import host_notices
from workspaces.streams.sources import (
    boot_source,
    guest_source,
    stats_channel,
    stats_source,
    workloads_channel,
    workloads_source,
)
from workspaces.streams.staff_tokens import (
    VIA,
    StreamAuthentication,
    revoked_staff_grants,
    staff_grant_of,
)

EVENTS = "text/event-stream"
LAST_ID = OpenApiParameter(
    "Last-Event-ID",
    str,
    OpenApiParameter.HEADER,
    description="The last id that the client received. The events after it are sent, or else `event: gap`.",
)
FRAMES = (
    "Server-sent events: `retry: 2000`, then `event: message` with an `id` and one JSON object on one line of `data`. "
    "A comment `: heartbeat` every 15 seconds. `event: gap` if events are missing. `event: host` with "
    "`host_state` and `host_since` when the state of its host changes: the stream stays open. Ends when the credential "
    "or token that opened it is revoked or expires, and when the workspace is deleted."
)


class StreamsViewSet(AsyncViewSet):
    """Event streams of one workspace. Staff open them by tokens of their own."""

    http_method_names = ["get"]

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Return the authenticators. Tokens of staff are not part of the API's description."""
        is_described: bool = getattr(self, "swagger_fake_view", False)
        return super().get_authenticators() if is_described else [StreamAuthentication()]

    @extend_schema(
        parameters=[LAST_ID],
        responses={
            (200, EVENTS): OpenApiResponse(OpenApiTypes.STR, description=FRAMES),
            **refused({429: "`rate_limited`"}),
        },
    )
    async def stats(self, request: ApiRequest, workspace_id: str) -> HttpResponseBase:
        """Stream the stats object once a second; zeros while the workspace does not run."""
        return event_stream(await in_request_thread(_stats_reader, request, workspace_id))

    @extend_schema(
        parameters=[StreamQuery, LAST_ID],
        responses={
            (200, EVENTS): OpenApiResponse(OpenApiTypes.STR, description=FRAMES),
            **refused({409: "`vm_not_running`, for logs inside the workspace", 429: "`rate_limited`"}),
        },
    )
    async def logs(self, request: ApiRequest, workspace_id: str, source: str) -> HttpResponseBase:
        """Stream a log entry for each line of `boot`, `cmd` or a workload: the last ones (1,000 at most), then each new
        one.

        A stream stays open while the workspace stops and starts. `{"cleared": true}` says that the log was emptied.
        """
        return event_stream(await in_request_thread(_log_reader, request, workspace_id, source))

    @extend_schema(
        parameters=[StreamQuery, LAST_ID],
        responses={
            (200, EVENTS): OpenApiResponse(OpenApiTypes.STR, description=FRAMES),
            **refused(
                {404: "`not_found`; `workload_not_found`", 409: "`vm_not_running`", 429: "`rate_limited`"},
            ),
        },
    )
    async def workload_logs(self, request: ApiRequest, workspace_id: str, workload_id: str) -> HttpResponseBase:
        """Stream `{data, stream, timestamp}` for each line of a saved workload: the last ones (1,000 at most), then
        each new one. In all else it is like the stream of a log.
        """
        return event_stream(await in_request_thread(_workload_log_reader, request, workspace_id, workload_id))

    @extend_schema(
        parameters=[LAST_ID],
        responses={
            (200, EVENTS): OpenApiResponse(OpenApiTypes.STR, description=FRAMES),
            **refused({429: "`rate_limited`"}),
        },
    )
    async def workload_stats(self, request: ApiRequest, workspace_id: str) -> HttpResponseBase:
        """Stream `{id, pid, uptime, cpu_percent, memory_bytes}` of each workload, by its name, once a second.

        Nothing comes while the workspace does not run. Nothing comes either from a guest that has run since before an
        upgrade of the platform; it needs a restart for this.
        """
        return event_stream(await in_request_thread(_workloads_reader, request, workspace_id))


def _workloads_reader(request: ApiRequest, workspace_id: str) -> Reader:
    workspace = requested_workspace(request.user, workspace_id)
    return Reader(
        channel=workloads_channel(workspace.pk),
        source=workloads_source(workspace.pk),
        after=last_event_id(request),
        notices=host_notices(workspace.pk),
        **_authorized_by(request.user, workspace),
    )


def _stats_reader(request: ApiRequest, workspace_id: str) -> Reader:
    workspace = requested_workspace(request.user, workspace_id)
    return Reader(
        channel=stats_channel(workspace.pk),
        source=stats_source(workspace.pk),
        after=last_event_id(request),
        notices=host_notices(workspace.pk),
        **_authorized_by(request.user, workspace),
        tail=1,
    )


def _authorized_by(actor: Actor, workspace: Workspace) -> dict[str, Any]:
    """Return the grant that ends a stream and the owner in whose limit it counts: staff do not use the account's."""
    if actor.via == VIA:
        return {"grant": staff_grant_of(actor), "revoked": revoked_staff_grants, "owner": actor.label}
    return {"grant": grant_of(actor, workspace), "revoked": revoked_grants, "owner": actor.account.pk}


def _log_reader(request: ApiRequest, workspace_id: str, name: str) -> Reader:
    workspace = requested_workspace(request.user, workspace_id, whole=True)
    lines: int = validated_query(StreamQuery, request)["tail_lines"]
    return _reader_of_log(request, workspace, find_source(workspace, name), lines)


def _workload_log_reader(request: ApiRequest, workspace_id: str, name: str) -> Reader:
    workspace = requested_workspace(request.user, workspace_id, whole=True)
    lines: int = validated_query(StreamQuery, request)["tail_lines"]
    source = workload_sources(workspace).get(name)
    if source is None:
        raise WorkloadNotFound
    return replace(_reader_of_log(request, workspace, source, lines), shape=output_of_entry)


def _reader_of_log(request: ApiRequest, workspace: Workspace, source: LogSource, lines: int) -> Reader:
    if not source.is_console:
        guest_log_address(workspace)
    host = (workspace.host_id or "") if source.is_console else ""
    return Reader(
        channel=log_channel(workspace.pk, source.name, host),
        source=boot_source(workspace.pk, host) if source.is_console else guest_source(workspace.pk, source),
        after=last_event_id(request),
        notices=host_notices(workspace.pk),
        **_authorized_by(request.user, workspace),
        tail=min(lines, SEED_LINES),
    )
