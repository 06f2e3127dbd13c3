"""The WebSockets of sandboxes: `/s/<id>` and `/s/<id>/ws`, with `?token=`. The id is that of a sandbox; staff open
plain workspaces, too, by tokens of their own.

A refusal is sent before the handshake, as a response with the body of any error: 401 and 403 for the token, 404, 409
`vm_not_running`, 429, 503. The close codes also say why a socket of staff is refused, except for 429 and 503: a browser
does not show a page the response, and there is no route at which it could ask by such a token.
"""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from functools import partial
from io import BytesIO

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest

from common.async_threads import in_pool_thread
from common.errors import DomainError, Forbidden, NotFound, RateLimited, Unauthorized
from common.log_context import set_logged_workspace
from sandboxes.grants import watched_token
from sandboxes.sockets.socket import TerminalSocket
from sandboxes.tokens import (
    STAFF_PREFIX,
    SocketHolder,
    require_socket_holder,
)
from workspaces import call_counter
from workspaces.data_plane.holders import require_running_allowed, wrong_tokens_counted
from workspaces.data_plane.sockets.places import socket_places
from workspaces.data_plane.sockets.serving import (
    GOING_AWAY,
    MAX_REASON,
    TOKEN_ENDED,
    Admitted,
    Scope,
    Send,
    SocketKind,
    accept_message,
    find_address,
    send_refusal,
)


class SandboxSockets(SocketKind):
    """Sockets of sandboxes."""

    path = re.compile(r"/s/([A-Za-z0-9_-]{1,64})(?:/|/ws/?)?")

    async def admit(self, scope: Scope, token: str, place: AsyncExitStack) -> Admitted:
        """Return who holds the socket, and the guest of its running machine. A sandbox that sleeps is woken.

        Raise NotFound, Unauthorized, Forbidden, NamespaceSuspended, QuotaExceeded, RateLimited, VmNotRunning,
        VMUnavailable.
        """
        found = self.path.fullmatch(scope["path"])
        if found is None:
            raise NotFound("There is no WebSocket at this address.")
        holder = await in_pool_thread(_holder, scope, found[1].lower(), token)
        workspace = holder.workspace
        set_logged_workspace(workspace.pk)
        places = socket_places("sandbox")
        await place.enter_async_context(places.socket_place(workspace.pk, settings.ENV.sandbox_sockets_max))
        address = await find_address(workspace, wakes=holder.wakes)
        return Admitted(address, partial(watched_token, holder), TerminalSocket)

    async def refuse(self, send: Send, error: DomainError, scope: Scope, token: str, request_id: str) -> None:
        """Refuse the socket by a response, one of staff by a close code."""
        is_staff = token.startswith(STAFF_PREFIX)
        if not is_staff or error.status >= 500 or isinstance(error, RateLimited):
            await send_refusal(send, error, scope["path"], request_id)
            return
        code = TOKEN_ENDED if isinstance(error, Unauthorized | Forbidden) else GOING_AWAY
        await send(accept_message(request_id))
        await send({"type": "websocket.close", "code": code, "reason": error.message[:MAX_REASON]})


def _holder(scope: Scope, address_id: str, token: str) -> SocketHolder:
    request = ASGIRequest({**scope, "method": "GET"}, BytesIO())
    with wrong_tokens_counted(request):
        holder = require_socket_holder(address_id, token)
    require_running_allowed(holder.workspace.namespace)
    if not holder.is_staff:
        call_counter.count_call(holder.workspace.pk)
    return holder
