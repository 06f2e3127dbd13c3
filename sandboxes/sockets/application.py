"""The ASGI application of WebSockets, beside Django's: `/s/<id>` and `/s/<id>/ws`, with `?token=`. The id is that of a
sandbox; staff open plain workspaces, too, by tokens of their own.

A refusal of a socket is sent before the handshake, as a response with the body of any error: 401 and 403 for the token,
404, 409 `vm_not_running`, 429, 503. Later there are close codes: 4401 once the token has ended, 1001 once the sandbox
does not run any more, 1009 for a message that is too large, 1008 for too many frames that are no message. The codes
also say why a socket of staff is refused, except for 429 and 503: a browser does not show a page the response, and
there is no route at which it could ask by such a token.
"""

from __future__ import annotations

import asyncio
import re
import weakref
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, suppress
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest

from common.async_threads import in_pool_thread
from common.errors import DomainError, Forbidden, NotFound, RateLimited, Unauthorized
from common.log_context import set_logged_workspace
from common.request_id import begin_request
from common.responses import as_domain_error, error_response
from common.stream_clients import SOCKETS, client_open
from common.wrong_secrets import refusal_waits
from sandboxes.grants import watched_token
from sandboxes.sockets.sandbox import OpenSandboxes, SandboxTerminals
from sandboxes.sockets.socket import TerminalSocket
from sandboxes.tokens import (
    STAFF_PREFIX,
    SocketHolder,
    require_socket_holder,
)
from vmbackend.guest.session import GuestAddress
from workspaces import call_counter
from workspaces.data_plane.cors import HEADERS
from workspaces.data_plane.guest import ASLEEP, wake_machine
from workspaces.data_plane.holders import require_running_allowed, wrong_tokens_counted
from workspaces.guests import address_of

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

PATH = re.compile(r"/s/([A-Za-z0-9_-]{1,64})(?:/|/ws/?)?")
TOKEN_ENDED = 4401
GOING_AWAY = 1001
SERVICE_RESTART = 1012  # what the server says to all clients at its end
MAX_REASON = 120  # bytes; reasons are ASCII
CLOSE_SECONDS = 0.5
LAST_SECONDS = 5.0
_open: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, OpenSandboxes] = weakref.WeakKeyDictionary()


class SandboxSockets:
    """The server of WebSockets; everything else goes to `application`."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._application(scope, receive, send)
            return
        token = _removed_token(scope)
        sent = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = begin_request(sent)
        await receive()  # websocket.connect
        # The client may go at any time.
        with suppress(OSError):
            async with AsyncExitStack() as place:
                try:
                    holder, address = await _admitted(scope, token, place)
                except Exception as exc:
                    await refusal_waits.wait_before(exc)
                    by_staff = token.startswith(STAFF_PREFIX)
                    await _refuse(send, as_domain_error(exc), scope["path"], request_id, by_staff=by_staff)
                    return
                await send({"type": "websocket.accept", "headers": [(b"x-request-id", request_id.encode())]})
                with client_open(SOCKETS):
                    await _serve(holder, address, receive, send)


def _removed_token(scope: Scope) -> str:
    """Return the query's token, which is removed: the server logs the address of every socket."""
    query = scope.get("query_string", b"").decode("latin-1")
    scope["query_string"] = b""
    return parse_qs(query, max_num_fields=100).get("token", [""])[-1] if query.count("&") < 100 else ""


async def _admitted(scope: Scope, token: str, place: AsyncExitStack) -> tuple[SocketHolder, GuestAddress]:
    """Return the holder of the socket, and the guest of its running machine. A sandbox that sleeps is woken. The socket
    counts until `place` ends.

    Raise NotFound, Unauthorized, Forbidden, NamespaceSuspended, QuotaExceeded, RateLimited, VmNotRunning,
    VMUnavailable.
    """
    found = PATH.fullmatch(scope["path"])
    if found is None:
        raise NotFound("There is no WebSocket at this address.")
    holder = await in_pool_thread(_holder, scope, found[1].lower(), token)
    workspace = holder.workspace
    set_logged_workspace(workspace.pk)
    await place.enter_async_context(_sandboxes().places.socket_place(workspace.pk, settings.ENV.sandbox_sockets_max))
    if holder.wakes and workspace.status in ASLEEP:
        await wake_machine(workspace.pk)
        fields = ["status", "ip", "control_port", "ssh_host_key"]
        await in_pool_thread(lambda: workspace.refresh_from_db(fields=fields))
    return holder, await in_pool_thread(address_of, workspace)


def _holder(scope: Scope, address_id: str, token: str) -> SocketHolder:
    request = ASGIRequest({**scope, "method": "GET"}, BytesIO())
    with wrong_tokens_counted(request):
        holder = require_socket_holder(address_id, token)
    require_running_allowed(holder.workspace.namespace)
    if not holder.is_staff:
        call_counter.count_call(holder.workspace.pk)
    return holder


def _sandboxes() -> OpenSandboxes:
    return _open.setdefault(asyncio.get_running_loop(), OpenSandboxes())


async def _refuse(send: Send, error: DomainError, path: str, request_id: str, *, by_staff: bool) -> None:
    """Refuse the socket. Some paths have a form of errors of their own, as in any other response."""
    if by_staff and error.status < 500 and not isinstance(error, RateLimited):
        code = TOKEN_ENDED if isinstance(error, Unauthorized | Forbidden) else GOING_AWAY
        await send({"type": "websocket.accept", "headers": [(b"x-request-id", request_id.encode())]})
        await send({"type": "websocket.close", "code": code, "reason": error.message[:MAX_REASON]})
        return
    response = error_response(error, path)
    fields = {
        **HEADERS, **dict(response.items()), "Content-Length": str(len(response.content)), "X-Request-ID": request_id,
    }  # fmt: skip
    headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "websocket.http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.content})


async def _serve(holder: SocketHolder, address: GuestAddress, receive: Receive, send: Send) -> None:
    """Serve the socket until the client leaves, or its token or sandbox ends."""
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def end(reason: str) -> None:
        if not ended.done():
            ended.set_result(reason)

    def make(sandbox: SandboxTerminals) -> TerminalSocket:
        return TerminalSocket(sandbox)

    async with watched_token(holder, end), _sandboxes().joined(address, make) as socket:
        assert isinstance(socket, TerminalSocket)  # noqa: S101  # what `make` made
        try:
            code, reason = await _run(socket, ended, receive, send)
            if code:
                # Before anything waits for the guest.
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await send({"type": "websocket.close", "code": code, "reason": reason[:MAX_REASON]})
        finally:
            await socket.leave()


async def _run(socket: TerminalSocket, ended: asyncio.Future[str], receive: Receive, send: Send) -> tuple[int, str]:
    """Return the close code and reason; 0 if the client is gone."""

    async def send_data(data: str | bytes) -> None:
        kind = "text" if isinstance(data, str) else "bytes"
        await send({"type": "websocket.send", kind: data})

    async def read() -> None:
        while (message := await receive())["type"] == "websocket.receive":
            text = message.get("text")
            await socket.serve_message(text if text is not None else message["bytes"])
            await socket.wait_turn()
        socket.cut = message.get("code") == SERVICE_RESTART

    socket.post("connected")
    reading, sending = asyncio.ensure_future(read()), asyncio.ensure_future(socket.send_forever(send_data))
    over: list[asyncio.Future[Any]] = [reading, ended, socket.ended]
    try:
        await asyncio.wait([*over, sending], return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            # The client is gone; what it sent before is done.
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED, timeout=LAST_SECONDS)
    finally:
        for task in (reading, sending):
            task.cancel()
        await asyncio.wait([reading, sending])
    if ended.done():
        return TOKEN_ENDED, ended.result()
    if socket.ended.done():
        return GOING_AWAY, socket.ended.result()
    for task in (reading, sending):
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, OSError):
            raise error
    return 0, ""
