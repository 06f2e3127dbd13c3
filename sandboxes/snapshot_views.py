"""Routes of `/sandbox/:id` for snapshots (wire contract, section 10)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import NAMESPACE_SCOPES
from common.request_origin import request_origin
from common.requests import validated
from common.responses import respond
from sandboxes import selectors, serializers, services
from sandboxes.views import RESPONSES, sandbox_power_response
from workspaces.models import Workspace
from workspaces.snapshots import outcomes
from workspaces.snapshots.serializers import ForkRequest, RestoreRequest, SnapshotRequest, new_forks
from workspaces.snapshots.views import (
    FORK_REFUSED,
    RESTORE_REFUSED,
    SNAPSHOT_RESPONSES,
    idempotency_of,
    mark_replayed,
    snapshot_response,
)


class SandboxSnapshotsViewSet(ViewSet):
    """Snapshots of sandboxes. `GET /snapshots` lists them; those of one sandbox have its `workspace_id`."""

    action_scopes = {"fork": NAMESPACE_SCOPES}

    @extend_schema(request=SnapshotRequest, responses=SNAPSHOT_RESPONSES)
    def create(self, request: ApiRequest, sandbox_id: str) -> Response:
        """Keep disk and memory of the sandbox, as of a workspace."""
        return snapshot_response(request, selectors.requested_sandbox(request.user, sandbox_id))

    @extend_schema(request=RestoreRequest, responses={**RESPONSES, **RESTORE_REFUSED})
    def restore(self, request: ApiRequest, sandbox_id: str) -> Response:
        """Put the sandbox back to one of its snapshots, as a workspace. Address and token stay."""
        workspace = selectors.requested_sandbox(request.user, sandbox_id)
        data = validated(RestoreRequest, request)
        operation = services.sandbox_restore(
            actor=request.user,
            workspace=workspace,
            identifier=data.get("snapshot"),
            memory=data.get("memory"),
            origin=request_origin(request._request),
        )
        return sandbox_power_response(request, workspace, operation)

    @extend_schema(
        request=ForkRequest,
        responses={201: serializers.SandboxForksResponse, 200: serializers.SandboxForksResponse, **FORK_REFUSED},
    )
    def fork(self, request: ApiRequest, sandbox_id: str) -> Response:
        """Make copies of the sandbox, as of a workspace. Each has an address and a token, which is shown only here."""
        workspace = selectors.requested_sandbox(request.user, sandbox_id)
        data = validated(ForkRequest, request)
        made, tokens = services.sandbox_fork(
            actor=request.user,
            workspace=workspace,
            new=new_forks(data),
            origin=request_origin(request._request),
            **idempotency_of(request, workspace, "sandbox fork"),
        )
        if data["wait_ready"]:
            outcomes.wait_for_copies(made.workspace_ids, data["ready_timeout_seconds"])

        def shown(row: Workspace) -> outcomes.Entry:
            return {"sandbox": services.CreatedSandbox(row, tokens.get(row.pk), None)}

        found = outcomes.copy_entries(made.workspace_ids, shown)
        response = respond(serializers.SandboxForksResponse, 200 if made.replayed else 201, forks=found)
        return mark_replayed(response, made.replayed)
