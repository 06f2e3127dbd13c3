"""ASGI middleware of streams: a large body is stored for a known sender only, and so many bytes for each account.

Django stores a body before any view runs, and so before its sender is known: on disk, and what a command reads (stdin)
in memory until the command has ended. Bodies that are streamed into a guest are not stored and not counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError

from accounts.authentication import actor_of
from accounts.hooks import sender_of_body
from common.async_threads import in_pool_thread
from common.errors import DomainError, RateLimited, Unauthorized
from common.responses import as_domain_error
from common.streaming_body import Message, Receive, Send, refuse_body, stored_bytes
from common.wrong_secrets import refusal_waits

# Smaller bodies are not looked at: their number is limited by that of the connections.
SMALL_BYTES = 64 * 1024
# The size of bodies that are being received, or whose requests are being carried out: three of the largest (files as
# JSON), twenty-five of commands.
ACCOUNT_BYTES = 256 * 1024 * 1024
TOTAL_BYTES = 1024 * 1024 * 1024
RETRY_SECONDS = 1
# While more of a body comes, its sender is looked up again after so long.
KNOWN_SECONDS = 1.0
_UNKNOWN = frozenset({401, 403, 404})

Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


class LargeBodies:
    """Large bodies in memory. Belongs to one event loop. A body that is refused is read and dropped, so that its sender
    gets the error.
    """

    def __init__(self, application: Application, *, per_account: int = ACCOUNT_BYTES, total: int = TOTAL_BYTES) -> None:
        self._application = application
        self._per_account = per_account
        self._total = total
        self._stored: Counter[str] = Counter()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        size = stored_bytes(scope) if scope["type"] == "http" else 0
        if size <= SMALL_BYTES:
            await self._application(scope, receive, send)
            return
        try:
            account = await in_pool_thread(_account_of, scope)
            self._require_room(account, size)
        except Exception as exc:
            await refusal_waits.wait_before(exc)
            await self._application(refuse_body(scope, as_domain_error(exc)), receive, send)
            return
        body = _SendersBody(scope, receive)
        with self._reserved(account, size):
            await self._application(scope, body.receive, send)
        if body.refusal is not None:
            await self._application(refuse_body(scope, body.refusal), receive, send)

    def _require_room(self, account: str, size: int) -> None:
        """Raise RateLimited. A body alone is never too much: its own limit is below those here."""
        own, everyone = self._stored[account], self._stored.total()
        if (own and own + size > self._per_account) or (everyone and everyone + size > self._total):
            message = "Too many large bodies are being received or used by commands; try again later."
            raise RateLimited(message, headers={"Retry-After": str(RETRY_SECONDS)})

    @contextmanager
    def _reserved(self, account: str, size: int) -> Iterator[None]:
        self._stored[account] += size
        try:
            yield
        finally:
            self._stored[account] -= size
            if not self._stored[account]:
                del self._stored[account]


class _SendersBody:
    """A body on its way, which ends with what authorized it: for Django its client has left then, and nothing was sent.

    `refusal` is the error that this client gets.
    """

    def __init__(self, scope: Mapping[str, Any], receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._known_until = time.monotonic() + KNOWN_SECONDS
        self.refusal: DomainError | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message.get("more_body", False) and time.monotonic() >= self._known_until:
            self.refusal = await in_pool_thread(_refusal_of, self._scope)
            if self.refusal is not None:
                return {"type": "http.disconnect"}
            self._known_until = time.monotonic() + KNOWN_SECONDS
        return message


def _refusal_of(scope: Mapping[str, Any]) -> DomainError | None:
    """Return the error of a sender who is not known any more; None also while that cannot be looked up."""
    try:
        _account_of(scope)
    except DomainError as exc:
        return exc if exc.status in _UNKNOWN else None
    except DatabaseError:
        pass
    return None


def _account_of(scope: Mapping[str, Any]) -> str:
    """Raise Unauthorized, Forbidden, RateLimited, InvalidApiKey."""
    request = ASGIRequest(dict(scope), BytesIO())
    for account in sender_of_body(request):
        if account is not None:
            return account
    actor = actor_of(request)
    if actor is None:
        raise Unauthorized
    return str(actor.account.pk)
