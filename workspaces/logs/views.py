"""`GET /workspace/:id/logs`."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.requests import validated_query
from common.responses import ok
from workspaces import selectors
from workspaces.api import schemas
from workspaces.api.requests import LogQuery
from workspaces.logs.remote import boot_log


class LogsViewSet(ViewSet):
    """Logs of one workspace."""

    @extend_schema(parameters=[LogQuery], responses=schemas.LogsResponse)
    def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """The last lines of the console log. The console gives no times, so `timestamp` is null."""
        query = validated_query(LogQuery, request)
        workspace = selectors.get(request.user, workspace_id)
        entries = [
            {"line": line, "message": line, "timestamp": None, "stream": "console", "source": query["source"]}
            for line in boot_log(workspace, query["tail_lines"])
        ]
        return ok(source=query["source"], logs=entries)
