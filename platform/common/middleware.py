"""The outermost middleware: request id, JSON for whatever escaped a view, the body limit by Content-Length."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from common import errors
from common.incoming import is_raw
from common.request_id import begin_request
from common.responses import as_domain_error, error_response


class ApiMiddleware:
    """Works under WSGI and ASGI alike, so that an asynchronous view is not pushed through a thread."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async: bool = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        request_id = begin_request(request.headers.get("X-Request-ID"))
        if self.is_async:
            return self._async_call(request, request_id)
        response = refusal(request) or self.get_response(request)
        response["X-Request-ID"] = request_id
        return response

    async def _async_call(self, request: HttpRequest, request_id: str) -> HttpResponseBase:
        response = refusal(request) or await self.get_response(request)
        response["X-Request-ID"] = request_id
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """JSON for everything but the admin, which keeps Django's own pages."""
        if request.path.startswith("/admin/"):
            return None
        return error_response(as_domain_error(exception))


def refusal(request: HttpRequest) -> HttpResponseBase | None:
    """What no route answers: a Host header that is not ours, a body that is too large."""
    try:
        request.get_host()
    except SuspiciousOperation as exc:
        return error_response(as_domain_error(exc))
    return refuse_large_body(request)


def refuse_large_body(request: HttpRequest) -> HttpResponseBase | None:
    """413 by the announced length; the parser counts where none is announced."""
    limit = body_limit(request.path, request.content_type or "")
    try:
        announced = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return error_response(errors.ValidationError("The Content-Length header is not a number."))
    if announced > limit:
        return error_response(
            errors.PayloadTooLarge(f"The body has {announced} bytes; at most {limit} are accepted here.")
        )
    return None


def body_limit(path: str, content_type: str = "") -> int:
    """Bytes accepted in a body: file writes carry base64 inside JSON, so theirs is a third above the file's."""
    if path.endswith("/overlay/files"):
        if is_raw(content_type):
            return settings.FILE_STREAM_LIMIT
        return settings.FILE_WRITE_LIMIT * 4 // 3 + 64 * 1024
    return settings.BODY_LIMIT
