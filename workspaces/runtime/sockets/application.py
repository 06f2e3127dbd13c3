"""The WebSocket of a runtime: `{url}/ws`, with `?token=` or the header."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from functools import partial
from io import BytesIO

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest

from common.async_threads import in_pool_thread
from common.log_context import set_logged_workspace
from common.sse.watched_grants import watched_grant
from workspaces import call_counter
from workspaces.data_plane.holders import bearer_token, require_running_allowed, wrong_tokens_counted
from workspaces.data_plane.sockets.places import socket_places
from workspaces.data_plane.sockets.serving import Admitted, Scope, SocketKind, find_address
from workspaces.runtime.grants import grant_of
from workspaces.runtime.sockets.socket import RuntimeSocket
from workspaces.runtime.tokens import RuntimeHolder, require_holder


class RuntimeSockets(SocketKind):
    """Sockets of runtimes. The address may name the workspace, which is to be that of the token then."""

    path = re.compile(r"/r(?:/(?P<named_id>ws[_-][a-z0-9]{1,32}))?(?:/runtimes/(?:default|local))?/ws/?", re.IGNORECASE)

    async def admit(self, scope: Scope, token: str, place: AsyncExitStack) -> Admitted:
        """Return who holds the socket, and the guest of its running machine. One that sleeps is woken.

        Raise Unauthorized, Forbidden, NamespaceSuspended, QuotaExceeded, RateLimited, VmNotRunning, VMUnavailable.
        """
        found = self.path.fullmatch(scope["path"])
        named_id = ((found and found["named_id"]) or "").lower().replace("-", "_")
        holder = await in_pool_thread(_holder, scope, named_id, token)
        workspace = holder.workspace
        set_logged_workspace(workspace.pk)
        places = socket_places("runtime")
        await place.enter_async_context(places.socket_place(workspace.pk, settings.ENV.runtime_sockets_max))
        address = await find_address(workspace)
        grant = grant_of(workspace)
        return Admitted(address, partial(watched_grant, grant.grant, grant.revoked), RuntimeSocket)


def _holder(scope: Scope, named_id: str, token: str) -> RuntimeHolder:
    request = ASGIRequest({**scope, "method": "GET"}, BytesIO())
    with wrong_tokens_counted(request):
        holder = require_holder(bearer_token(request) or token, named_id)
    require_running_allowed(holder.workspace.namespace)
    call_counter.count_call(holder.workspace.pk)
    return holder
