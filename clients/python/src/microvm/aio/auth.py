"""Credentials: what is sent with each request."""

from __future__ import annotations

from time import monotonic
from typing import Protocol

import httpx

from microvm.aio.waiting import Lock
from microvm.credentials import AccessTokens, ClientCredential, bearer_header
from microvm.errors import ConnectionFailed, error_of, retry_after_of

# A token is renewed when this part of its life is left, so that none ends on the way.
RENEWED_AT = 0.2


class AsyncAuth(Protocol):
    """Gives the headers of a request."""

    async def headers(self) -> dict[str, str]: ...

    def is_renewable(self, refused: dict[str, str]) -> bool:
        """Called after a 401 with the headers that were refused: whether `headers` may give others now."""
        ...


class AsyncFixedAuth:
    """The same headers each time."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    async def headers(self) -> dict[str, str]:
        return self._headers

    def is_renewable(self, refused: dict[str, str]) -> bool:
        return False


class AsyncTokenAuth:
    """Access tokens, issued with a client credential by the first request and again before each one ends.

    Callers at once cause one issue. `headers` raises ApiError where the service refuses, ConnectionFailed where no
    answer came.
    """

    def __init__(self, http: httpx.AsyncClient, credential: ClientCredential, tokens: AccessTokens) -> None:
        self._http = http
        self._credential = credential
        self._tokens = tokens
        self._lock = Lock()
        self._token = ""
        self._renewal = 0.0

    async def headers(self) -> dict[str, str]:
        async with self._lock:
            if not self._token or monotonic() >= self._renewal:
                await self._issue()
            return bearer_header(self._token)

    def is_renewable(self, refused: dict[str, str]) -> bool:
        if refused == bearer_header(self._token):
            self._token = ""
        return True

    async def _issue(self) -> None:
        begun = monotonic()
        try:
            response = await self._http.post("/tokens", json=self._tokens.body(), headers=self._credential.headers())
        except httpx.TransportError as error:
            raise ConnectionFailed(f"No access token: {error}") from error
        if not response.is_success:
            raise error_of(response.status_code, response.content, retry_after_of(response.headers))
        answer = response.json()
        self._token = str(answer["token"])
        self._renewal = begun + answer["ttl"] * (1 - RENEWED_AT)
