"""Middleware of the admin alone: API requests do not pay for sessions and CSRF."""

from __future__ import annotations

from collections.abc import Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.module_loading import import_string


class AdminOnlyMiddleware:
    """Runs ADMIN_MIDDLEWARE around requests to /admin/ and nothing around all others."""

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
