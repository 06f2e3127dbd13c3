"""All routes, and one of the sandbox level that the tests of what these have in common call."""

from __future__ import annotations

import logging

from django.urls import path
from rest_framework import serializers
from rest_framework.response import Response

from common.fields import StrictChar
from common.responses import ok
from config.urls import handler400, handler404, handler500
from config.urls import urlpatterns as of_the_platform
from sandboxes.level.base import SandboxLevelViewSet, SandboxRequest

logger = logging.getLogger(__name__)
__all__ = ["handler400", "handler404", "handler500", "urlpatterns"]


class PrintRequest(serializers.Serializer):
    text = StrictChar()


class PrintViewSet(SandboxLevelViewSet):
    async def print(self, request: SandboxRequest, sandbox_id: str) -> Response:
        data = await self.body(PrintRequest)
        guest = await self.guest()
        logger.info("in the view")
        result = await guest.run(lambda session: session.execute(["printf", "%s", data["text"]]), 30)
        return ok(output=result.stdout.decode(), sandbox=self.sandbox.pk)


urlpatterns = [
    # Before the platform's own of this name, whose bodies have the limit of files.
    path("s/<sbx:sandbox_id>/files/create", PrintViewSet.as_view({"post": "print"})),
    *of_the_platform,
]
