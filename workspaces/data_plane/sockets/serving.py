"""The ASGI application of WebSockets to the inside of machines, beside Django's.

A refusal of a socket is sent before the handshake, as a response with the body of any error. Later there are close
codes: 4401 once the token has ended, 1001 once the machine does not run any more, 1009 for a message that is too large,
1008 for too many frames that are no message.
"""

from __future__ import annotations

import asyncio
import re
import weakref
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qs

from common.async_threads import in_pool_thread
from common.errors import DomainError
from common.request_id import begin_request
from common.responses import as_domain_error, error_response
from common.stream_clients import SOCKETS, client_open
from common.wrong_secrets import refusal_waits
from vmbackend.guest.session import GuestAddress
from workspaces.data_plane.cors import HEADERS
from workspaces.data_plane.guest import ASLEEP, wake_machine
from workspaces.data_plane.sockets.machine import MachineTerminals, OpenMachines, Socket
from workspaces.guests import address_of
from workspaces.models import Workspace

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

TOKEN_ENDED = 4401
GOING_AWAY = 1001
SERVICE_RESTART = 1012  # what the server says to all clients at its end
MAX_REASON = 120  # bytes; reasons are ASCII
CLOSE_SECONDS = 0.5
LAST_SECONDS = 5.0
_open: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, OpenMachines] = weakref.WeakKeyDictionary()


class ServedSocket(Socket, Protocol):
    """A socket as the server uses it. `ended` has the reason once the machine does not run any more; `cut`: the end of
    this process ended it.
    """

    ended: asyncio.Future[str]
    cut: bool

    async def prepare(self) -> None:
        """Look at the machine before the handshake. Raise what refuses the socket."""

    def begin(self) -> None:
        """Queue what its client is told first."""

    async def serve_message(self, data: str | bytes) -> None:
        """Do what one message asks for. Errors are sent; none ends the socket."""

    async def wait_turn(self) -> None:
        """Wait after a message, so that others are served before the next one."""

    async def send_forever(self, send: Callable[[str | bytes], Awaitable[None]]) -> None:
        """Send what there is, and what comes."""

    async def leave(self) -> None:
        """Give back what it has."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A socket that may open: its guest, the watch of the right to it, which calls its argument with the reason of its
    end, and the maker of the object that serves it.
    """

    address: GuestAddress
    watch: Callable[[Callable[[str], None]], AbstractAsyncContextManager[None]]
    make: Callable[[MachineTerminals], ServedSocket]


class SocketKind:
    """One kind of sockets. `path`: which addresses are its."""

    path: re.Pattern[str]

    async def admit(self, scope: Scope, token: str, place: AsyncExitStack) -> Admitted:
        """Admit whoever has the token, which the address had; the socket counts until `place` ends. Raise what refuses
        it.
        """
        raise NotImplementedError

    async def refuse(self, send: Send, error: DomainError, scope: Scope, token: str, request_id: str) -> None:
        """Refuse the socket by a response."""
        await send_refusal(send, error, scope["path"], request_id)


class MachineSockets:
    """The server of WebSockets; everything else goes to `application`. The last kind has all other paths, too."""

    def __init__(self, application: Application, kinds: Sequence[SocketKind]) -> None:
        self._application = application
        self._kinds = kinds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._application(scope, receive, send)
            return
        token = _removed_token(scope)
        request_id = begin_request(header_of(scope, b"x-request-id"))
        kind = next((kind for kind in self._kinds if kind.path.fullmatch(scope["path"])), self._kinds[-1])

        async def refuse(exc: Exception) -> None:
            await refusal_waits.wait_before(exc)
            await kind.refuse(send, as_domain_error(exc), scope, token, request_id)

        await receive()  # websocket.connect
        # The client may go at any time.
        with suppress(OSError):
            async with AsyncExitStack() as place:
                try:
                    admitted = await kind.admit(scope, token, place)
                except Exception as exc:
                    await refuse(exc)
                    return
                with client_open(SOCKETS):
                    await _serve(admitted, refuse, request_id, receive, send)


async def find_address(workspace: Workspace, *, wakes: bool = True) -> GuestAddress:
    """Return where the guest of a running machine is, which counts as a use; one that sleeps is woken, if `wakes`.

    Raise VmNotRunning, VMUnavailable, and what refuses a wake.
    """
    if wakes and workspace.status in ASLEEP:
        await wake_machine(workspace.pk)
        fields = ["status", "ip", "control_port", "ssh_host_key"]
        await in_pool_thread(lambda: workspace.refresh_from_db(fields=fields))
    return await in_pool_thread(address_of, workspace)


def header_of(scope: Scope, name: bytes) -> str:
    """Return a header, the last one of that name; empty without one."""
    return str(dict(scope["headers"]).get(name, b"").decode("latin-1"))


def accept_message(request_id: str) -> Message:
    """Return the message that accepts a socket."""
    return {"type": "websocket.accept", "headers": [(b"x-request-id", request_id.encode())]}


async def send_refusal(send: Send, error: DomainError, path: str, request_id: str) -> None:
    """Refuse a socket. Some paths have a form of errors of their own, as in any other response."""
    response = error_response(error, path)
    fields = {
        **HEADERS, **dict(response.items()), "Content-Length": str(len(response.content)), "X-Request-ID": request_id,
    }  # fmt: skip
    headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "websocket.http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.content})


def _removed_token(scope: Scope) -> str:
    """Return the query's token, which is removed: the server logs the address of every socket."""
    query = scope.get("query_string", b"").decode("latin-1")
    scope["query_string"] = b""
    return parse_qs(query, max_num_fields=100).get("token", [""])[-1] if query.count("&") < 100 else ""


async def _serve(
    admitted: Admitted, refuse: Callable[[Exception], Awaitable[None]], request_id: str, receive: Receive, send: Send
) -> None:
    """Serve the socket until the client leaves, or its token or machine ends."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str] = loop.create_future()

    def end(reason: str) -> None:
        if not ended.done():
            ended.set_result(reason)

    machines = _open.setdefault(loop, OpenMachines())
    async with admitted.watch(end), machines.joined(admitted.address, admitted.make) as socket:
        try:
            try:
                await socket.prepare()
            except Exception as exc:
                await refuse(exc)
                return
            await send(accept_message(request_id))
            code, reason = await _run(socket, ended, receive, send)
            if code:
                # Before anything waits for the guest.
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await send({"type": "websocket.close", "code": code, "reason": reason[:MAX_REASON]})
        finally:
            await socket.leave()


async def _run(socket: ServedSocket, ended: asyncio.Future[str], receive: Receive, send: Send) -> tuple[int, str]:
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

    socket.begin()
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
