"""Middleware of the admin alone, as API requests do not pay for sessions and CSRF, and Django's security headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from django.middleware.security import SecurityMiddleware
from django.utils.module_loading import import_string

from common.dual_middleware import DualMiddleware


class SecurityHeadersMiddleware(DualMiddleware):
    """Django's SecurityMiddleware. By itself it asks a thread under ASGI, twice for each request, for a few headers."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self._django = SecurityMiddleware(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        return self._async_call(request) if self.is_async else self._django(request)

    async def _async_call(self, request: HttpRequest) -> HttpResponseBase:
        refused = self._django.process_request(request)
        response = await self.get_response(request) if refused is None else refused
        return self._django.process_response(request, response)


class AdminOnlyMiddleware:
    """Middleware that runs ADMIN_MIDDLEWARE around requests to /admin/ and nothing around all others."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)
            return
        chain = get_response
        for path in reversed(settings.ADMIN_MIDDLEWARE):
            chain = import_string(path)(chain)
        self.admin_chain = chain

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if self.is_async:  # the streams process; the edge routes /admin/ to the api process only
            return self.get_response(request)
        return (self.admin_chain if request.path.startswith("/admin") else self.get_response)(request)


def refuse_null_characters(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Any:
    """Return middleware of the admin: PostgreSQL takes no text with one, and no browser sends one. Raises
    BadRequest.
    """

    def respond(request: HttpRequest) -> HttpResponseBase:
        sent = [request.GET, request.POST] if request.method == "POST" else [request.GET]
        if "\0" in request.path or any("\0" in text for data in sent for text in _texts(data)):
            raise BadRequest("The request has a null character.")
        return get_response(request)

    return respond


def _texts(data: QueryDict) -> Iterator[str]:
    for name, values in data.lists():
        yield str(name)
        yield from map(str, values)
