"""`/v1/blurs` (specification, Code assistance API). Served by streams: a call may take a minute without a thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from django.http import JsonResponse
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.request import Request

from assist import serializers as bodies
from assist.authentication import ApiKeyAuthentication
from assist.error_form import assist_error_body
from assist.errors import InvalidApiKey, status_of
from assist.openapi import documented_responses
from assist.requests import Caller, configured_endpoint, identify_caller, request_check, with_receiver
from assist.routes import DEBUG, GENERATE, OPTIMIZE, AssistRoute
from assist.serving import ServedCall
from assist.threads import in_name_thread, in_query_thread
from common.async_threads import run_to_end
from common.async_views import AsyncViewSet
from common.connections import release_thread
from common.error_forms import refused_body
from common.errors import NotFound
from common.responses import as_domain_error


class BlursViewSet(AsyncViewSet):
    """Routes that ask the configured model. An API key alone says who asks."""

    authentication_classes = [ApiKeyAuthentication]
    permission_classes = []

    async def begin(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Set an empty caller. DRF would authenticate in the request's thread; here it is done with the rest."""
        self.caller = Caller()

    def handle_exception(self, exc: Exception) -> JsonResponse:  # type: ignore[override]  # Django's, rendered
        error = as_domain_error(exc)
        headers = {**self.caller.headers(), **error.headers}
        if isinstance(exc, MethodNotAllowed):
            headers["Allow"] = "POST"
        return JsonResponse(assist_error_body(error), status=status_of(error), headers=headers)

    @extend_schema(request=bodies.AssistGenerateRequest, responses=documented_responses(bodies.AssistGenerateResponse))
    async def generate(self, request: Request) -> JsonResponse:
        """Write code for a prompt.

        With `webhook_url` the event `generation.complete` is also sent there.
        """
        return await self._serve(GENERATE, bodies.AssistGenerateRequest)

    @extend_schema(request=bodies.AssistDebugRequest, responses=documented_responses(bodies.AssistDebugResponse))
    async def debug(self, request: Request) -> JsonResponse:
        """Find what is wrong with code, and correct it. Its event is `generation.complete` with `kind` `debug`."""
        return await self._serve(DEBUG, bodies.AssistDebugRequest)

    @extend_schema(request=bodies.AssistOptimizeRequest, responses=documented_responses(bodies.AssistOptimizeResponse))
    async def optimize(self, request: Request) -> JsonResponse:
        """Make code faster, smaller to deliver, or easier on the database. Its event is `optimization.complete`."""
        return await self._serve(OPTIMIZE, bodies.AssistOptimizeRequest)

    async def _serve(self, route: AssistRoute, body: Any) -> JsonResponse:
        await self._refuse_body()
        try:
            asked = await in_query_thread(request_check, self.http_request, self.caller, route, body)
            release_thread()
            if asked.webhook_url:
                asked = await in_name_thread(with_receiver, asked)
            call = ServedCall(configured_endpoint(), route, asked, self.caller)
            fields = await _served(call)
        except Exception:
            await in_query_thread(self.caller.day_look_up)
            raise
        return JsonResponse({"success": True, **fields}, headers=self.caller.headers())

    def _handler(self) -> Any:
        known = str(self.request.method).lower() == "post"
        return getattr(self, "post", self._refuse) if known else self._refuse

    async def _refuse(self, request: Request, **kwargs: Any) -> JsonResponse:
        """Raise MethodNotAllowed, after looking up the caller whose limits the headers show."""
        await self._identify()
        raise MethodNotAllowed(str(request.method))

    async def _refuse_body(self) -> None:
        """Raise the reason why the body was refused, if it was: also to callers whose key is not valid."""
        error = refused_body(self.http_request)
        if error is not None:
            with suppress(InvalidApiKey):
                await self._identify()
            raise error

    async def _identify(self) -> None:
        """Look up the caller, whose limits the headers show. Raise InvalidApiKey."""
        await in_query_thread(identify_caller, self.http_request, self.caller)
        await in_query_thread(self.caller.day_look_up)


class UnknownPathViewSet(BlursViewSet):
    """Every other path below /v1/blurs, by all methods."""

    schema = None

    async def unknown(self, request: Request) -> JsonResponse:
        """Answer 404, or 401 to a request without a valid key."""
        await self._identify()
        raise NotFound("There is no such route.")

    def _handler(self) -> Any:
        return self.unknown


async def _served(call: ServedCall) -> dict[str, Any]:
    """Carry out the call to its end. If the client leaves, tell the call."""
    try:
        return await run_to_end(call.carry_out())
    except asyncio.CancelledError:
        call.leave()
        raise
