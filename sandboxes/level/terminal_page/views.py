"""Files of the terminal page. The page itself shares its path with commands (`sandboxes/level/terminal/views.py`)."""

from __future__ import annotations

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from common.async_views import AsyncViewSet
from sandboxes.level.terminal_page.responses import file_response


class TerminalPageFilesViewSet(AsyncViewSet):
    """Public: they hold nothing of any sandbox."""

    authentication_classes = []
    permission_classes = []
    http_method_names = ["get", "head"]

    @extend_schema(exclude=True)
    async def read(self, request: Request, sandbox_id: str, version: str, name: str) -> HttpResponse:
        """One file, for ever the same."""
        return file_response(version, name)
