"""Base classes of the routes of the sandbox level: the token, the guest, errors.

An action is a coroutine. It reads its body, then asks for the guest, and holds no thread while the guest works:

    async def list(self, request: SandboxRequest, sandbox_id: str) -> Response:
        data = await self.body(ListRequest)
        guest = await self.guest()
        entries, _ = await guest.call(lambda session: session.list_directory(data["dirPath"]), SECONDS)
        return ok(...)
"""

from __future__ import annotations

from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from common.async_views import AsyncViewSet
from common.caller_places import remember_account
from common.log_context import set_logged_workspace
from common.watched_bodies import BodyGrant
from sandboxes.grants import SocketGrant, revoked_grants
from sandboxes.models import Sandbox
from sandboxes.tokens import TokenHolder, require_holder
from workspaces import call_counter
from workspaces.data_plane.guest import OpenGuest, open_guest
from workspaces.data_plane.holders import bearer_token, require_running_allowed, wrong_tokens_counted
from workspaces.data_plane.json_bodies import read_body


class SandboxRequest(Request):
    """The type of a request of the holder of the sandbox's token."""

    user: TokenHolder  # type: ignore[assignment]


class SandboxAuthentication(BaseAuthentication):
    """`Authorization: Bearer` with the token of the sandbox in the path. Nothing else counts: no cookie, no query.

    Raises what `require_holder` and `require_running_allowed` raise.
    """

    def authenticate(self, request: Request) -> tuple[TokenHolder, None]:
        with wrong_tokens_counted(request._request):
            holder = require_holder(request.parser_context["kwargs"]["sandbox_id"], bearer_token(request._request))
        remember_account(request._request, holder.account_id)
        require_running_allowed(holder.workspace.namespace)
        call_counter.count_call(holder.workspace.pk)
        set_logged_workspace(holder.workspace.pk)
        return holder, None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="sandbox"'


class HolderPermission(BasePermission):
    """The authentication has decided."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.user, TokenHolder)


class SandboxLevelViewSet(AsyncViewSet):
    """Routes of one sandbox: POST with a JSON body and the sandbox's token. Every action takes `sandbox_id`."""

    authentication_classes = [SandboxAuthentication]
    permission_classes = [HolderPermission]
    http_method_names = ["post"]
    request: SandboxRequest

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of the request; `sandbox.workspace` has the columns of `sandboxes.tokens.COLUMNS`."""
        return self.request.user.sandbox

    async def body(self, serializer: type[Serializer[Any]]) -> dict[str, Any]:
        """The body's documented fields. Raise a validation_error that names each wrong one."""
        return await read_body(serializer, self.request)

    @property
    def grant(self) -> BodyGrant:
        """Return what a body ends with: the token of the request."""
        return BodyGrant(SocketGrant(self.request.user.workspace.pk, self.sandbox.token_hash), revoked_grants)

    async def guest(self) -> OpenGuest:
        """Return what `open_guest` returns, for the sandbox. Each call of it counts as a use."""
        return await open_guest(self.request.user.workspace, self.grant)
