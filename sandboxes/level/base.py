"""Base classes of the routes of the sandbox level: the token, the guest, errors.

An action is a coroutine. It reads its body, then asks for the guest, and holds no thread while the guest works:

    async def list(self, request: SandboxRequest, sandbox_id: str) -> Response:
        data = await self.body(ListRequest)
        guest = await self.guest()
        entries, _ = await guest.call(lambda session: session.list_directory(data["dirPath"]), SECONDS)
        return ok(...)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from common.async_threads import in_pool_thread, in_request_thread, run_to_end
from common.async_views import AsyncViewSet
from common.caller_places import remember_account
from common.errors import InvalidState, VMUnavailable
from common.log_context import set_logged_workspace
from common.requests import validated
from common.watched_bodies import BodyGrant, while_granted
from sandboxes.grants import SocketGrant, revoked_grants
from sandboxes.models import Sandbox
from sandboxes.tokens import (
    TokenHolder,
    bearer_token,
    require_holder,
    require_not_suspended,
    wrong_tokens_counted,
)
from vmbackend.guest.deadlines import PLACE_SECONDS
from vmbackend.guest.session import GuestAddress, GuestSession
from workspaces import call_counter, last_used
from workspaces.commands.capacity import command_place
from workspaces.edge_auth.wake_coalescer import wake_coalescer
from workspaces.errors import OperationInProgress, VmNotRunning
from workspaces.guests import call_guest, open_file, running_address
from workspaces.states import Status

T = TypeVar("T")

ASLEEP = frozenset({Status.SLEEPING, Status.WAKING, Status.SUSPENDING})
RETRY_SECONDS = 2
# Bytes of a body that is read on the event loop: in less time than a thread takes to be asked.
SMALL_BODY = 8 * 1024


@dataclass(frozen=True, slots=True)
class SandboxGuest:
    """The guest of a running sandbox."""

    address: GuestAddress
    account_id: str
    disk_bytes: int
    grant: BodyGrant

    async def call(self, fn: Callable[[GuestSession], Awaitable[T]], timeout: float) -> T:
        """Return what `fn` returns for the guest's session, within `timeout` seconds; the call ends if its client goes
        away.

        Counts as a use. `fn` runs on the loop of the guest pool, in another thread. Raise the errors of
        `workspaces.guests.call_errors`.
        """
        await in_pool_thread(last_used.record_use, self.address.machine_id)
        return await call_guest(self.address, fn, timeout)

    async def run(self, fn: Callable[[GuestSession], Awaitable[T]], timeout: float) -> T:
        """Do what `call` does, for commands: the call goes on if its client goes away, keeps the sandbox awake, and
        counts as one of the account's commands. A token that ends in the meantime gets nothing of its output. Raises
        RateLimited and Unauthorized beside the errors of `call`.
        """
        async with while_granted(self.grant):
            return await run_to_end(self._run(fn, timeout))

    async def _run(self, fn: Callable[[GuestSession], Awaitable[T]], timeout: float) -> T:
        with command_place(self.account_id):
            async with last_used.in_use_async(self.address.machine_id, timeout + PLACE_SECONDS):
                return await call_guest(self.address, fn, timeout)

    async def open_file(
        self, read: Callable[[GuestSession], AsyncIterator[bytes]], timeout: float
    ) -> AsyncIterator[bytes]:
        """Yield the chunks of a file, once the first has been read; `timeout` in seconds for one chunk. Counts as a
        use.
        """
        await in_pool_thread(last_used.record_use, self.address.machine_id)
        return await open_file(self.address, read, timeout)


class SandboxRequest(Request):
    """The type of a request of the holder of the sandbox's token."""

    user: TokenHolder  # type: ignore[assignment]


class SandboxAuthentication(BaseAuthentication):
    """`Authorization: Bearer` with the token of the sandbox in the path. Nothing else counts: no cookie, no query.

    Raises what `require_holder` and `require_not_suspended` raise.
    """

    def authenticate(self, request: Request) -> tuple[TokenHolder, None]:
        with wrong_tokens_counted(request._request):
            holder = require_holder(request.parser_context["kwargs"]["sandbox_id"], bearer_token(request._request))
        remember_account(request._request, holder.account_id)
        require_not_suspended(holder)
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

    async def begin(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Nothing after it needs the request's thread, unless the body is large."""
        if self._body_is_small:
            await in_request_thread(self.initial, request, *args, **kwargs)
        else:
            await super().begin(request, *args, **kwargs)

    async def body(self, serializer: type[Serializer[Any]]) -> dict[str, Any]:
        """The body's documented fields. Raise a validation_error that names each wrong one."""
        if self._body_is_small:
            return validated(serializer, self.request)
        return await in_request_thread(validated, serializer, self.request)

    @property
    def grant(self) -> BodyGrant:
        """Return what a body ends with: the token of the request."""
        return BodyGrant(SocketGrant(self.request.user.workspace.pk, self.sandbox.token_hash), revoked_grants)

    @property
    def _body_is_small(self) -> bool:
        return int(self.http_request.META.get("CONTENT_LENGTH") or 0) <= SMALL_BODY

    async def guest(self) -> SandboxGuest:
        """The guest of the running sandbox; one that sleeps is woken first, as for a request to a public port.

        Each call of it counts as a use. Raise VmNotRunning (it is stopped, paused, being made, ...), VMUnavailable (it
        did not wake), and what refuses a wake: NamespaceSuspended, QuotaExceeded, RunningPoolReached.
        """
        workspace = self.request.user.workspace
        if workspace.status in ASLEEP:
            await wake_sandbox(workspace.pk)
            await in_request_thread(workspace.refresh_from_db, fields=["status", "ip", "control_port", "ssh_host_key"])
        disk_bytes = workspace.applied_disk_size_mb << 20
        return SandboxGuest(running_address(workspace), workspace.account_id, disk_bytes, self.grant)


async def wake_sandbox(workspace_id: str) -> None:
    """Wake a sleeping machine; concurrent callers share one wake. Raise what `SandboxLevelViewSet.guest` raises."""
    retry = {"Retry-After": str(RETRY_SECONDS)}
    try:
        if not await wake_coalescer().ensure_running(workspace_id):
            raise VMUnavailable("The sandbox did not wake in time; try again.", headers=retry)
    except (InvalidState, OperationInProgress) as exc:
        raise VmNotRunning(exc.message, details=exc.details, headers=retry) from exc
