"""Cross-origin requests to the inside of machines: from any page, without credentials of the browser.

A token is sent in a header by a program that has it, and nothing else is a credential there, so that a page of another
origin can do nothing that its program could not do anyway.
"""

from __future__ import annotations

from collections.abc import Awaitable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from common.dual_middleware import DualMiddleware
from common.request_id import begin_request
from edge.addresses import RUNTIME_PATH, SANDBOX_PATH

MAX_AGE_SECONDS = 86400
HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Content-Disposition, Content-Length, Retry-After, X-Request-ID",
}
# Methods and headers that a page may send, by the beginning of the path. The runtime passes requests on to programs.
ALLOWED = {
    SANDBOX_PATH: ("GET, POST", "Authorization, Content-Type, X-Request-ID"),
    RUNTIME_PATH: ("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", "*, Authorization"),
}


class LevelCorsMiddleware(DualMiddleware):
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
    """Return whether a request is a preflight, which carries no token. Programs of the runtime have OPTIONS, too."""
    if request.method != "OPTIONS":
        return False
    if request.path.startswith(RUNTIME_PATH):
        return "Access-Control-Request-Method" in request.headers
    return request.path.startswith(SANDBOX_PATH)


def preflight_response(request: HttpRequest) -> HttpResponse:
    """Return the response to a preflight, which a browser sends before it sends the token."""
    methods, headers = next(both for path, both in ALLOWED.items() if request.path.startswith(path))
    return HttpResponse(
        status=204,
        headers={
            **HEADERS,
            "Access-Control-Allow-Methods": methods,
            "Access-Control-Allow-Headers": headers,
            "Access-Control-Max-Age": str(MAX_AGE_SECONDS),
            "X-Request-ID": begin_request(request.headers.get("X-Request-ID")),
        },
    )


def allowed(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Return the response, with the headers by which a page may read it."""
    if request.path.startswith(tuple(ALLOWED)):
        for name, value in HEADERS.items():
            response[name] = value
    return response
