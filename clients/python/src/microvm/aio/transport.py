"""Requests with credentials, repetitions and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from microvm.aio.auth import AsyncAuth, AsyncFixedAuth
from microvm.aio.waiting import sleep
from microvm.credentials import bearer_header
from microvm.errors import ConnectionFailed, body_of, error_of, retry_after_of
from microvm.retries import Retries, Sending, is_passing, refused_unprocessed

Content = Callable[[], AsyncIterator[bytes]]


class AsyncTransport:
    """Sends requests to one service. `http` is closed by `close`, also where the caller made it.

    `prefix` stands before each path: a sandbox's address.
    """

    def __init__(self, http: httpx.AsyncClient, auth: AsyncAuth, retries: Retries, prefix: str = "") -> None:
        self._http = http
        self._auth = auth
        self._retries = retries
        self._prefix = prefix

    @property
    def retries(self) -> Retries:
        return self._retries

    def with_bearer(self, token: str, prefix: str = "") -> AsyncTransport:
        """The same connections, with a credential and a prefix of their own."""
        return self.with_auth(AsyncFixedAuth(bearer_header(token)), prefix)

    def with_auth(self, auth: AsyncAuth, prefix: str) -> AsyncTransport:
        """The same connections, with credentials that may be renewed, and a prefix of their own."""
        return AsyncTransport(self._http, auth, self._retries, prefix)

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, sending: Sending) -> Any:
        """The body of a success, {} where it has none.

        Raises ApiError for an error, ConnectionFailed where no answer came.
        """
        response = await self._exchange(sending, None, stream=False)
        return body_of(response.status_code, response.content)

    @asynccontextmanager
    async def opened(self, sending: Sending, content: Content | None = None) -> AsyncIterator[httpx.Response]:
        """A success whose body is read by the caller; `content` gives the request's body, once for each attempt.

        Raises as `call` does; what breaks off while the body is read is httpx's TransportError.
        """
        response = await self._exchange(sending, content, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _exchange(self, sending: Sending, content: Content | None, *, stream: bool) -> httpx.Response:
        attempt, is_renewed, is_unsure = 1, False, False
        while True:
            auth = await self._auth.headers()
            outcome = await self._outcome(sending, auth, content, stream)
            if not isinstance(outcome, httpx.Response):
                wait = self._wait_after_failure(attempt, sending, outcome)
                if wait is None:
                    raise ConnectionFailed(f"No answer from {self._http.base_url.host}: {outcome}") from outcome
                is_unsure = is_unsure or not refused_unprocessed(outcome)
            elif outcome.is_success:
                return outcome
            else:
                await outcome.aread()
                if outcome.status_code == 401 and not is_renewed and self._auth.is_renewable(auth):
                    is_renewed = True
                    continue
                wait = self._wait_after_answer(attempt, sending, outcome)
                if wait is None:
                    error = error_of(outcome.status_code, outcome.content, retry_after_of(outcome.headers))
                    error.after_lost_answer = is_unsure
                    raise error
                is_unsure = is_unsure or outcome.status_code != 429
            await sleep(wait)
            attempt += 1

    async def _outcome(
        self, sending: Sending, auth: dict[str, str], content: Content | None, stream: bool
    ) -> httpx.Response | httpx.TransportError:
        request = self._http.build_request(
            sending.method,
            f"{self._prefix}{sending.path}",
            params=_present(sending.query),
            json=sending.body,
            content=None if content is None else content(),
            headers={**auth, **sending.headers},
            timeout=httpx.USE_CLIENT_DEFAULT if sending.timeout is None else sending.timeout,
        )
        try:
            return await self._http.send(request, stream=stream)
        except httpx.TransportError as error:
            return error

    def _wait_after_failure(self, attempt: int, sending: Sending, failure: httpx.TransportError) -> float | None:
        if not sending.is_repeatable and not refused_unprocessed(failure):
            return None
        return self._retries.wait_before_next(attempt, None)

    def _wait_after_answer(self, attempt: int, sending: Sending, response: httpx.Response) -> float | None:
        if not is_passing(response.status_code, sending.is_repeatable):
            return None
        return self._retries.wait_before_next(attempt, retry_after_of(response.headers))


def _present(query: Mapping[str, Any]) -> dict[str, Any] | None:
    return {name: value for name, value in query.items() if value is not None} or None
