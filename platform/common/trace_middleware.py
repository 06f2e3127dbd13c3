"""A span for each request, named by its method and the pattern of its route."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from common.dual_middleware import DualMiddleware
from common.traces import span

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SERVER_ERROR = 500


class TraceMiddleware(DualMiddleware):
    """Middleware that is listed if traces are on. A trace begins here: what a caller sends as `traceparent` is not
    taken over.

    The span of a response that streams ends with its headers.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._async_call(request)
        with span(_method(request), "server", **{"http.request.method": _method(request)}) as made:
            response: HttpResponseBase = self.get_response(request)
            _describe(made, request, response)
            return response

    async def _async_call(self, request: HttpRequest) -> HttpResponseBase:
        with span(_method(request), "server", **{"http.request.method": _method(request)}) as made:
            response: HttpResponseBase = await self.get_response(request)
            _describe(made, request, response)
            return response


def _method(request: HttpRequest) -> str:
    """Return the method; `_OTHER` for an unknown one, which is any text of the caller's."""
    return request.method if request.method in _METHODS else "_OTHER"


def _describe(made: Any, request: HttpRequest, response: HttpResponseBase) -> None:
    if made is None:
        return
    made.set_attribute("http.response.status_code", response.status_code)
    if request.resolver_match is not None:
        # The pattern, without the ids in the path.
        made.set_attribute("http.route", f"/{request.resolver_match.route}")
        made.update_name(f"{_method(request)} /{request.resolver_match.route}")
    if response.status_code >= _SERVER_ERROR:
        made.set_attribute("error.type", str(response.status_code))
