"""Checked contents of a request to run a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from accounts.authentication import ApiRequest
from common.requests import validated
from vmbackend.guest.output import CommandExit, OutputPart
from vmbackend.guest.session import IMAGE_USER, ExecResult, GuestAddress, GuestSession
from workspaces.commands.output import Encoding
from workspaces.commands.serializers import ExecRequest
from workspaces.grants import StreamGrant, grant_of
from workspaces.guests import address_of
from workspaces.requested import requested_workspace

# Seconds by which an exec request may take longer than its command.
EXEC_SLACK_SECONDS = 20
# Seconds between SIGTERM and SIGKILL, for a command whose output is streamed.
GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Command:
    """A checked request: the command, and the guest that runs it. `options` as `GuestSession.execute` takes them."""

    account_id: str
    address: GuestAddress
    grant: StreamGrant
    options: dict[str, Any]
    encoding: Encoding
    is_streamed: bool
    stdin_key: str | None

    @property
    def seconds(self) -> float:
        """Return the deadline of the whole request."""
        return float(self.options["timeout"]) + EXEC_SLACK_SECONDS

    async def execute(self, session: GuestSession) -> ExecResult:
        return await session.execute(**self.options)

    def stream(
        self, session: GuestSession, stdin_parts: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[OutputPart | CommandExit]:
        return session.execute_streamed(**self.options, stdin_parts=stdin_parts, grace=GRACE_SECONDS)


def requested_command(request: ApiRequest, workspace_id: str) -> Command:
    """Return the command that a request asks for; this counts as a use of the workspace. Raise ValidationError,
    NotFound, VmNotRunning.
    """
    workspace = requested_workspace(request.user, workspace_id, whole=True)
    data = validated(ExecRequest, request)
    options = {
        "command": data["cmd"],
        "env": data.get("env"),
        "working_dir": data.get("working_dir"),
        "user": data.get("user", IMAGE_USER),
        "stdin": data["stdin"],
        "timeout": data["timeout_seconds"],
    }
    grant = grant_of(request.user, workspace)
    return Command(
        request.user.account.pk,
        address_of(workspace),
        grant,
        options,
        data["encoding"],
        is_streamed=data["stream"],
        stdin_key=data.get("stdin_key"),
    )
