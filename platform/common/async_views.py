"""DRF viewsets whose actions are coroutines, for routes that wait for a guest or a host.

Under ASGI a synchronous view holds a thread until its response is made, and there is no limit to these threads. An
asynchronous action uses one for what needs it (authentication, the body, queries), ends it, and waits without one.
"""

from __future__ import annotations

from typing import Any

from asgiref.sync import markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from common.async_threads import in_request_thread
from common.wrong_secrets import refusal_waits


class ShortResponse(Response):
    """A response that takes less time to render than a thread takes to be asked: the event loop renders it."""


class AsyncViewSet(ViewSet):
    """A viewset with coroutines as actions; everything else of DRF, the OpenAPI schema included, works as in others.

    An action may return a DRF `Response`, or any response of Django's (a stream, a file), which is sent as it is.
    """

    http_request: HttpRequest  # Django's request, for a body that no parser reads

    @classmethod
    def as_view(cls, actions: Any = None, **initkwargs: Any) -> Any:
        view = super().as_view(actions, **initkwargs)
        return markcoroutinefunction(view)

    async def dispatch(  # type: ignore[override]  # a coroutine in place of a response
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """As DRF's, with authentication, permissions and throttles in the request's thread."""
        self.args, self.kwargs, self.http_request = args, kwargs, request
        self.request = self.initialize_request(request, *args, **kwargs)
        self.headers = self.default_response_headers
        response: HttpResponseBase
        try:
            await self.begin(self.request, *args, **kwargs)
            response = await self._handler()(self.request, *args, **kwargs)
        except Exception as exc:
            await refusal_waits.wait_before(exc)
            response = self.handle_exception(exc)
        if isinstance(response, Response):
            response = self.finalize_response(self.request, response, *args, **kwargs)
        return _rendered(response) if isinstance(response, ShortResponse) else response

    async def begin(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authentication, permissions and throttles. Raise what refuses the request.

        An action may wait for long, for its client's body, too: it begins without a thread and a connection.
        """
        await in_request_thread(self.initial, request, *args, **kwargs)

    def _handler(self) -> Any:
        method = str(self.request.method).lower()
        if method not in self.http_method_names:
            return self.http_method_not_allowed
        return getattr(self, method, self.http_method_not_allowed)


def _rendered(response: Response) -> HttpResponse:
    """Return the same as a response that Django does not render."""
    response.render()
    return HttpResponse(response.content, status=response.status_code, headers=dict(response.items()))
