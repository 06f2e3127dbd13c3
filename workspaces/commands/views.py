"""`/workspace/:id/exec` (wire contract, section 3: added routes)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.connections import release_connection
from common.openapi import refused
from common.requests import validated
from common.responses import ok
from vmbackend.backend import guest_pool
from vmbackend.guest.session import ExecResult
from workspaces import last_used
from workspaces.commands import serializers
from workspaces.guests import address_of, guest_errors
from workspaces.requested import requested_workspace

# How much longer than its command an exec request may take.
EXEC_SLACK_SECONDS = 20


class CommandsViewSet(ViewSet):
    """Runs commands in a workspace."""

    @extend_schema(
        request=serializers.ExecRequest,
        responses={
            200: serializers.ExecResponse,
            **refused({400: "`validation_error`; `command_invalid`", 409: "`vm_not_running`"}),
        },
    )
    def execute(self, request: ApiRequest, workspace_id: str) -> Response:
        """Run a command in the workspace to its end. At the timeout its whole process group is killed (code 124).

        At most 1 MiB of each stream is returned; `truncated` tells that there was more.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.ExecRequest, request)
        address = address_of(workspace)
        seconds = data["timeout_seconds"] + EXEC_SLACK_SECONDS
        release_connection()
        with last_used.in_use(workspace.pk, seconds), guest_errors():
            result = guest_pool().call(
                address,
                lambda session: session.execute(
                    data["cmd"],
                    env=data.get("env"),
                    working_dir=data.get("working_dir"),
                    user=data.get("user"),
                    stdin=data["stdin"].encode(),
                    timeout=data["timeout_seconds"],
                ),
                seconds,
            )
        return ok(**exec_body(result))


def exec_body(result: ExecResult) -> dict[str, Any]:
    """Output is text; bytes that are no UTF-8 are replaced."""
    return {
        "exit_code": result.exit_code,
        "stdout": result.stdout.decode(errors="replace"),
        "stderr": result.stderr.decode(errors="replace"),
        "duration_ms": result.duration_ms,
        "truncated": result.truncated,
        "timed_out": result.timed_out,
    }
