"""`/workspace/:id/exec` (wire contract, section 3: added routes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from accounts.authentication import ApiRequest
from common.async_views import AsyncViewSet, in_request_thread, run_to_end
from common.openapi import refused
from common.requests import validated
from vmbackend.guest.deadlines import PLACE_SECONDS
from vmbackend.guest.session import ExecResult, GuestAddress, GuestSession
from workspaces import last_used
from workspaces.commands.capacity import command_place
from workspaces.commands.serializers import ExecRequest, ExecResponse
from workspaces.guests import address_of, call_guest
from workspaces.requested import requested_workspace

# How much longer than its command an exec request may take.
EXEC_SLACK_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Command:
    """A checked request: what to run and where. `options` as `GuestSession.execute` takes them."""

    account_id: str
    address: GuestAddress
    options: dict[str, Any]

    @property
    def seconds(self) -> float:
        """The whole request's deadline."""
        return float(self.options["timeout"]) + EXEC_SLACK_SECONDS

    async def execute(self, session: GuestSession) -> ExecResult:
        return await session.execute(**self.options)


class CommandsViewSet(AsyncViewSet):
    """Runs commands in a workspace."""

    @extend_schema(
        request=ExecRequest,
        responses={
            200: ExecResponse,
            **refused(
                {
                    400: "`validation_error`; `command_invalid`",
                    409: "`vm_not_running`",
                    429: "`rate_limited`: too many commands run at once, of this account, in this machine or of all; "
                    "`Retry-After` says in how many seconds to try again",
                }
            ),
        },
    )
    async def execute(self, request: ApiRequest, workspace_id: str) -> Response:
        """Run a command in the workspace to its end. At the timeout all that it began is killed (code 124).

        At most 1 MiB of each output is returned; `truncated` says whether there was more. The command
        continues if the client disconnects.
        """
        command = await in_request_thread(_checked_command, request, workspace_id)
        return Response(ExecResponse(await run_to_end(_run(command))).data)


def _checked_command(request: ApiRequest, workspace_id: str) -> Command:
    workspace = requested_workspace(request.user, workspace_id, whole=True)
    data = validated(ExecRequest, request)
    options = {
        "command": data["cmd"],
        "env": data.get("env"),
        "working_dir": data.get("working_dir"),
        "user": data.get("user"),
        "stdin": data["stdin"].encode(),
        "timeout": data["timeout_seconds"],
    }
    return Command(request.user.account.pk, address_of(workspace), options)


async def _run(command: Command) -> ExecResult:
    """Raises RateLimited before anything reaches the guest, and the errors of `call_guest`."""
    with command_place(command.account_id):
        async with last_used.in_use_async(command.address.machine_id, command.seconds + PLACE_SECONDS):
            return await call_guest(command.address, command.execute, command.seconds)
