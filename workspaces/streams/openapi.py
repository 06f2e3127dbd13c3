"""The routes of this room and of logs that are no DRF views, for the OpenAPI document alone."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.viewsets import ViewSet

from common.openapi import refused
from workspaces.logs.serializers import StreamQuery

EVENTS = "text/event-stream"
LAST_ID = OpenApiParameter(
    "Last-Event-ID",
    str,
    OpenApiParameter.HEADER,
    description="The last id that was received: what came after it is sent, else `event: gap`.",
)
FRAMES = (
    "Server-sent events: `retry: 2000`, then `event: message` with an `id` and one JSON object on one line of `data`. "
    "A comment `: heartbeat` every 15 seconds. `event: gap` where events are missing. Ends with the credential or "
    "token that opened it, and with the workspace."
)


class StreamDocumentation(ViewSet):
    """Describes `workspaces.streams.views` and `workspaces.logs.views.log_file`; serves nothing."""

    @extend_schema(
        parameters=[LAST_ID],
        responses={
            (200, EVENTS): OpenApiResponse(OpenApiTypes.STR, description=FRAMES),
            **refused({429: "`rate_limited`"}),
        },
    )
    def stats(self, request: Any, workspace_id: str) -> None:
        """The stats object once a second; zeros while the workspace does not run."""

    @extend_schema(
        parameters=[StreamQuery, LAST_ID],
        responses={
            (200, EVENTS): OpenApiResponse(OpenApiTypes.STR, description=FRAMES),
            **refused({409: "`vm_not_running`, of what lies in the workspace", 429: "`rate_limited`"}),
        },
    )
    def logs(self, request: Any, workspace_id: str, source: str) -> None:
        """A log entry for each line of `boot`, `cmd` or a workload: the last ones (1,000 at most), then as they come.

        A stream stays open while the workspace stops and starts. `{"cleared": true}` tells that the log was emptied.
        """

    @extend_schema(
        responses={
            (200, "text/plain"): OpenApiTypes.STR,
            **refused({404: "`not_found`; `path_not_found`", 409: "`vm_not_running`"}),
        }
    )
    def file(self, request: Any, workspace_id: str, name: str) -> None:
        """One log file as it is. Lines of the console begin with the time at which they were read."""


def add_streams(endpoints: list[Any], **kwargs: Any) -> list[Any]:
    """Preprocessing hook."""
    routes = {"stats/stream": "stats", "logs/stream/{source}": "logs", "logs/file/{name}": "file"}
    begin, pattern = "/workspace/{workspace_id}/", r"^workspace/(?P<workspace_id>[^/]+)/"
    return [
        *endpoints,
        *(
            (begin + path, pattern + path.replace("{", "(?P<").replace("}", ">[^/]+)"), "GET", view(action))
            for path, action in routes.items()
        ),
    ]


def view(action: str) -> Any:
    return StreamDocumentation.as_view({"get": action})
