"""WebSockets at `{url}/proxy/...`: the server in the machine accepts or refuses each, and what follows passes.

A refusal of the platform is sent before the handshake, as the response that any request gets. Later there are close
codes: 4401 once the token has ended, 1001 once the machine does not run any more, 1009 for a message that is too large,
1011 for a server that broke off.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, suppress
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs

from asgiref.sync import ThreadSensitiveContext
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest

from common.async_threads import in_pool_thread
from common.errors import DomainError, Unauthorized
from common.request_id import begin_request
from common.responses import as_domain_error, error_response
from common.stream_clients import SOCKETS, client_open
from common.watched_bodies import while_granted
from common.wrong_secrets import refusal_waits
from vmbackend.guest.sources import pulled_from
from workspaces.data_plane.cors import HEADERS
from workspaces.data_plane.guest import OpenGuest, open_guest
from workspaces.data_plane.holders import bearer_token, wrong_tokens_counted
from workspaces.runtime.base import admit_holder
from workspaces.runtime.grants import grant_of
from workspaces.runtime.proxy.heads import client_headers, guest_headers
from workspaces.runtime.proxy.services import keeps_cookies
from workspaces.runtime.proxy.socket_exchange import (
    Message,
    Said,
    SocketClosed,
    SocketOpened,
    SocketRefused,
    SocketRequest,
    exchange_messages,
)
from workspaces.runtime.proxy.targets import find_destination
from workspaces.runtime.tokens import RuntimeHolder, require_holder

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

PATH = re.compile(r"/r(?:/(ws[_-][a-z0-9]{1,32}))?(?:/runtimes/(?:default|local))?/proxy/.*", re.DOTALL | re.IGNORECASE)
PLACE = b"/proxy"
HANDSHAKE = b"sec-websocket-"
TOKEN_ENDED, GOING_AWAY = 4401, 1001
NO_CODE = 1005
MAX_REASON = 120  # bytes
CLOSE_SECONDS = 0.5


class ProxySockets:
    """The server of these WebSockets; everything else goes to `application`."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = PATH.fullmatch(scope["path"]) if scope["type"] == "websocket" else None
        if found is None:
            await self._application(scope, receive, send)
            return
        request_id = begin_request(dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1"))
        query, scope["query_string"] = scope.get("query_string", b""), b""  # the server logs it
        await receive()  # websocket.connect
        with suppress(OSError):  # the client may go at any time
            async with ThreadSensitiveContext():
                await _Proxied(scope, query, (found[1] or "").lower().replace("-", "_"), request_id).serve(
                    receive, send
                )


class _ClientMessages:
    """Messages that a client sends, and its close."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_gone = False

    def __aiter__(self) -> _ClientMessages:
        return self

    async def __anext__(self) -> Message:
        if self.is_gone:
            raise StopAsyncIteration
        event = await self._receive()
        if event["type"] == "websocket.receive":
            text = event.get("text")
            return text if text is not None else bytes(event["bytes"])
        self.is_gone = True
        return SocketClosed(event.get("code") or NO_CODE, event.get("reason") or "")


class _Proxied:
    """One socket of a client."""

    def __init__(self, scope: Scope, query: bytes, named_id: str, request_id: str) -> None:
        self._scope = scope
        self._query = query
        self._named_id = named_id
        self._request_id = request_id
        self._is_accepted = False

    async def serve(self, receive: Receive, send: Send) -> None:
        """Serve until either side closes, or the token or the machine ends."""
        messages = _ClientMessages(receive)
        try:
            guest, request = await self._opened()
            loop = asyncio.get_running_loop()
            said = guest.stream(lambda session: exchange_messages(session, request, pulled_from(loop, messages)))
            async with while_granted(guest.grant), aclosing(said):
                await self._pass(said, messages, send)
        except OSError:
            raise
        except Exception as exc:
            await self._end(as_domain_error(exc), messages, send)

    async def _pass(self, said: AsyncGenerator[Said, None], messages: _ClientMessages, send: Send) -> None:
        first = await anext(said)
        if isinstance(first, SocketRefused):
            await self._refuse(first, send)
            return
        assert isinstance(first, SocketOpened)  # noqa: S101  # the other answer
        headers = [(b"x-request-id", self._request_id.encode())]
        await send({"type": "websocket.accept", "subprotocol": first.subprotocol, "headers": headers})
        self._is_accepted = True
        with client_open(SOCKETS):
            async for part in said:
                if messages.is_gone:
                    return
                if isinstance(part, SocketClosed):
                    await self._close(part.code, part.reason, send)
                elif isinstance(part, str | bytes):
                    await send({"type": "websocket.send", "text" if isinstance(part, str) else "bytes": part})

    async def _opened(self) -> tuple[OpenGuest, SocketRequest]:
        """Return the guest and what is sent to it. Raise what refuses a holder, ValidationError, and the errors of
        `open_guest`.
        """
        token = self._token()
        holder = await in_pool_thread(self._holder, token)
        workspace = holder.workspace
        sent, path = self._scope["headers"], self._scope["raw_path"].partition(PLACE)[2]
        found = find_destination(sent, path, self._query, token=token, control_port=workspace.control_port)
        cookies = frozenset({settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME})
        headers = [each for each in sent if not each[0].startswith(HANDSHAKE)]
        passed = guest_headers(headers, token=token, cookies=cookies)
        request = SocketRequest(found.path, passed, tuple(self._scope.get("subprotocols", ())), found.target)
        return await open_guest(workspace, grant_of(workspace)), request

    def _token(self) -> str:
        """Return the token of the header, else of the query."""
        given = bearer_token(self._request())
        if given or self._query.count(b"&") >= 100:
            return given
        return parse_qs(self._query.decode("latin-1")).get("token", [""])[-1]

    def _holder(self, token: str) -> RuntimeHolder:
        request = self._request()
        with wrong_tokens_counted(request):
            holder = require_holder(token, self._named_id)
        admit_holder(holder, request)
        return holder

    def _request(self) -> ASGIRequest:
        return ASGIRequest({**self._scope, "method": "GET"}, BytesIO())

    async def _end(self, error: DomainError, messages: _ClientMessages, send: Send) -> None:
        if self._is_accepted:
            code = TOKEN_ENDED if isinstance(error, Unauthorized) else GOING_AWAY
            if not messages.is_gone:
                with suppress(TimeoutError):  # the server cuts a client that takes nothing
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await self._close(code, error.message, send)
            return
        await refusal_waits.wait_before(error)
        response = error_response(error, self._scope["path"])
        fields = {**dict(response.items()), "Content-Length": str(len(response.content))}
        await self._respond(response.status_code, _encoded(fields), response.content, send)

    async def _refuse(self, refused: SocketRefused, send: Send) -> None:
        head = refused.head
        headers = client_headers(head.headers, status=head.status, keeps_cookies=keeps_cookies())
        kept = [(name.lower(), value) for name, value in headers if name.lower() != b"content-length"]
        length = (b"content-length", b"%d" % len(refused.body))
        await self._respond(head.status, [*kept, length], refused.body, send)

    async def _respond(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, send: Send) -> None:
        own = _encoded({**HEADERS, "X-Request-ID": self._request_id})
        await send({"type": "websocket.http.response.start", "status": status, "headers": [*headers, *own]})
        await send({"type": "websocket.http.response.body", "body": body})

    async def _close(self, code: int, reason: str, send: Send) -> None:
        shown = reason.encode()[:MAX_REASON].decode("utf-8", "ignore")
        await send({"type": "websocket.close", "code": 1000 if code == NO_CODE else code, "reason": shown})


def _encoded(fields: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
