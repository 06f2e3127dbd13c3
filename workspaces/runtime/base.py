"""Base classes of the routes of the runtime: the token, the guest.

An action is a coroutine, as those of the sandbox level. It takes no id: the token names the workspace.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from common.async_views import AsyncViewSet
from common.caller_places import remember_account
from common.log_context import set_logged_workspace
from common.watched_bodies import BodyGrant
from workspaces import call_counter
from workspaces.data_plane.guest import OpenGuest, open_guest
from workspaces.data_plane.holders import bearer_token, require_running_allowed, wrong_tokens_counted
from workspaces.models import Workspace
from workspaces.runtime.grants import grant_of
from workspaces.runtime.tokens import RuntimeHolder, require_holder


class RuntimeRequest(Request):
    """The type of a request of the holder of a runtime's token."""

    user: RuntimeHolder  # type: ignore[assignment]


class RuntimeAuthentication(BaseAuthentication):
    """`Authorization: Bearer` with a token of the runtime. Nothing else counts: no cookie, no query.

    Raises what `require_holder` and `require_running_allowed` raise.
    """

    def authenticate(self, request: Request) -> tuple[RuntimeHolder, None]:
        named_id = request.parser_context["kwargs"].get("named_id", "")
        with wrong_tokens_counted(request._request):
            holder = require_holder(bearer_token(request._request), named_id)
        admit_holder(holder, request._request)
        return holder, None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="runtime"'


def admit_holder(holder: RuntimeHolder, request: HttpRequest) -> None:
    """Note who calls. Raise what `require_running_allowed` raises."""
    remember_account(request, holder.account_id)
    require_running_allowed(holder.workspace.namespace)
    call_counter.count_call(holder.workspace.pk)
    set_logged_workspace(holder.workspace.pk)


class RuntimePermission(BasePermission):
    """The authentication has decided."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.user, RuntimeHolder)


class RuntimeViewSet(AsyncViewSet):
    """Routes inside one workspace, with the token of its runtime."""

    authentication_classes = [RuntimeAuthentication]
    permission_classes = [RuntimePermission]
    request: RuntimeRequest

    @property
    def workspace(self) -> Workspace:
        """The workspace of the token, with the columns of `data_plane.holders.COLUMNS`."""
        return self.request.user.workspace

    @property
    def grant(self) -> BodyGrant:
        """Return what a body ends with: the epoch of the token."""
        return grant_of(self.workspace)

    async def guest(self) -> OpenGuest:
        """Return what `open_guest` returns. Each call of it counts as a use."""
        return await open_guest(self.workspace, self.grant)
