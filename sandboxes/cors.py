"""Cross-origin requests to the sandbox level: from any page, without credentials of the browser.

A sandbox's token is sent in a header by a program that has it, and nothing else is a credential there, so that a page
of another origin can do nothing that its program could not do anyway.
"""

from __future__ import annotations

from collections.abc import Awaitable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from common.dual_middleware import DualMiddleware
from common.request_id import begin_request
from edge.addresses import SANDBOX_PATH

MAX_AGE_SECONDS = 86400
HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Content-Disposition, Content-Length, Retry-After, X-Request-ID",
}
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Request-ID",
    "Access-Control-Max-Age": str(MAX_AGE_SECONDS),
}


class SandboxCorsMiddleware(DualMiddleware):
    """The outermost one, so that refusals of all others have the headers, too."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._async_call(request)
        if is_preflight(request):
            return preflight_response(request)
        return allowed(request, self.get_response(request))

    async def _async_call(self, request: HttpRequest) -> HttpResponseBase:
        if is_preflight(request):
            return preflight_response(request)
        return allowed(request, await self.get_response(request))


def is_preflight(request: HttpRequest) -> bool:
    """Return whether a request is a preflight of the sandbox level; a preflight carries no token."""
    return request.method == "OPTIONS" and request.path.startswith(SANDBOX_PATH)


def preflight_response(request: HttpRequest) -> HttpResponse:
    """Return the response to a preflight, which a browser sends before it sends the token."""
    request_id = begin_request(request.headers.get("X-Request-ID"))
    return HttpResponse(status=204, headers={**HEADERS, **PREFLIGHT, "X-Request-ID": request_id})


def allowed(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Return the response, with the headers by which a page may read it."""
    if request.path.startswith(SANDBOX_PATH):
        for name, value in HEADERS.items():
            response[name] = value
    return response
