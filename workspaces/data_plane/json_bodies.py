"""JSON bodies of requests to a machine's inside, which an action reads after its holder is known."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.serializers import Serializer

from common.async_threads import in_request_thread
from common.requests import validated

# Bytes of a body that is read on the event loop: in less time than a thread takes to be asked.
SMALL_BODY = 8 * 1024


async def read_body(serializer: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the body's documented fields. Raise a validation_error that names each wrong one."""
    if int(request._request.META.get("CONTENT_LENGTH") or 0) <= SMALL_BODY:
        return validated(serializer, request)
    return await in_request_thread(validated, serializer, request)
