"""The outermost middleware: request id, JSON for exceptions that no view handled, bodies that are too large or that end
early.
"""

from __future__ import annotations

from collections.abc import Awaitable

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, SuspiciousOperation
from django.http import HttpRequest, UnreadablePostError
from django.http.response import HttpResponseBase

from common import errors
from common.body_rules import body_limit
from common.caller_places import loop_place, thread_place
from common.dual_middleware import DualMiddleware
from common.error_forms import is_left_to_view
from common.log_context import begin_context
from common.request_id import begin_request
from common.response_headers import begin_response_headers, write_response_headers
from common.responses import as_domain_error, error_response
from common.streaming_body import body_refusal, body_was_too_large


class ApiMiddleware(DualMiddleware):
    """The middleware of each request, whichever view serves the request."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        request_id = begin_request(request.headers.get("X-Request-ID"))
        begin_context(request_id)
        begin_response_headers()
        if self.is_async:
            return self._async_call(request, request_id)
        response = refusal(request) or self._placed(request)
        response["X-Request-ID"] = request_id
        write_response_headers(response)
        return response

    def _placed(self, request: HttpRequest) -> HttpResponseBase:
        try:
            with thread_place(request):
                # Within it, as the body takes memory.
                response: HttpResponseBase = refuse_incomplete_body(request) or self.get_response(request)
                return response
        except errors.RateLimited as exc:  # only of the place: the handler makes responses of all others
            return error_response(exc, request.path)

    async def _async_call(self, request: HttpRequest, request_id: str) -> HttpResponseBase:
        async with loop_place(request):
            response = refusal(request) or await self.get_response(request)
        response["X-Request-ID"] = request_id
        write_response_headers(response)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """Return a JSON error for every path but the admin, which has Django's own pages; also there for a row that
        another request deletes while a page is made of it.
        """
        if request.path.startswith("/admin/") and not isinstance(exception, ObjectDoesNotExist):
            return None
        return error_response(as_domain_error(exception), request.path)


def refusal(request: HttpRequest) -> HttpResponseBase | None:
    """Return the refusal of a request before routing: an unknown Host header, a body that is too large or of an unknown
    sender.
    """
    try:
        request.get_host()
    except SuspiciousOperation as exc:
        return error_response(as_domain_error(exc), request.path)
    error = large_body_error(request) or body_refusal(request)
    if error is None or is_left_to_view(request, error):
        return None
    return error_response(error, request.path)


def refuse_incomplete_body(request: HttpRequest) -> HttpResponseBase | None:
    """Return 400 if the connection ended before the body did, so that no view does less than the client asked for, or
    more.

    For WSGI. The body is read here, as many views do not look at theirs. Under ASGI it is complete before any
    middleware runs, or the request ends. Bodies of files, which may be larger than memory, are read by their view.
    """
    limit = body_limit(str(request.method), request.path, request.content_type or "")
    if request.META.get("CONTENT_LENGTH", "") in ("", "0") or limit > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        return None
    try:
        _ = request.body
    except UnreadablePostError as exc:
        return error_response(as_domain_error(exc), request.path)
    return None


def large_body_error(request: HttpRequest) -> errors.DomainError | None:
    """Return 413 by Content-Length, or by the received bytes of a body without it."""
    limit = body_limit(str(request.method), request.path, request.content_type or "")
    try:
        announced = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return errors.ValidationError("The Content-Length header is not a number.")
    if announced <= limit and not body_was_too_large(request):
        return None
    has = f"{announced} bytes" if announced > limit else "more"
    return errors.PayloadTooLarge(f"The body has {has}; at most {limit} bytes are accepted here.")
