"""Requests with credentials, repetitions and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from microvm.errors import ConnectionFailed, error_of
from microvm.retries import Retries, is_passing, may_repeat, refused_unprocessed, seconds_of

Json = dict[str, Any]


class AsyncTransport:
    """Sends requests to one service. `http` is closed by `close`, also where the caller made it."""

    def __init__(self, http: httpx.AsyncClient, credentials: Mapping[str, str], retries: Retries) -> None:
        self._http = http
        self._credentials = dict(credentials)
        self._retries = retries

    async def close(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Json:
        """The body of a success. Raises ApiError for an error, ConnectionFailed where no answer came."""
        sent = {**self._credentials, **(headers or {})}
        extensions = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        request = self._http.build_request(
            method, path, params=_present(query), json=body, headers=sent, timeout=extensions
        )
        response = await self._send(request, may_repeat(method, sent))
        parsed = _parsed(response)
        if response.is_success and isinstance(parsed, dict):
            return parsed
        raise error_of(response.status_code, parsed, seconds_of(response.headers.get("Retry-After")))

    async def _send(self, request: httpx.Request, repeatable: bool) -> httpx.Response:
        attempt = 1
        while True:
            failure: httpx.TransportError | None = None
            response: httpx.Response | None = None
            try:
                response = await self._http.send(request)
            except httpx.TransportError as error:
                failure = error
            if response is not None and not is_passing(response.status_code, repeatable):
                return response
            wait = self._wait(attempt, response, failure, repeatable)
            if wait is None:
                if response is not None:
                    return response
                raise ConnectionFailed(f"No answer from {request.url.host}: {failure}") from failure
            await asyncio.sleep(wait)
            attempt += 1

    def _wait(
        self, attempt: int, response: httpx.Response | None, failure: httpx.TransportError | None, repeatable: bool
    ) -> float | None:
        if failure is not None and not repeatable and not refused_unprocessed(failure):
            return None
        header = None if response is None else response.headers.get("Retry-After")
        return self._retries.wait_before_next(attempt, seconds_of(header))


def _present(query: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if query is None else {name: value for name, value in query.items() if value is not None}


def _parsed(response: httpx.Response) -> object:
    try:
        return response.json()
    except ValueError:
        return None
