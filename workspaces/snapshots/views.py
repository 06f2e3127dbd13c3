"""`/snapshots`, and what `/workspace/:id` does with snapshots (wire contract, section 10)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import NAMESPACE_SCOPES
from common.idempotency import fingerprint, key_of
from common.openapi import MessageResponse, refused
from common.pagination import PagePagination
from common.requests import body_of, validated, validated_query
from common.responses import respond
from workspaces import snapshot_selectors
from workspaces.crud.serializers import ANSWER_FIELDS
from workspaces.models import Workspace
from workspaces.operations import waiting
from workspaces.requested import requested_workspace
from workspaces.serializers import GoingOnResponse, WorkspaceResponse
from workspaces.snapshots import forks, outcomes, serializers, services
from workspaces.wait_response import SUSPENDED, UNAVAILABLE, WRONG_STATE, power_response, require_success

LIMITS = "`POOL_LIMIT_REACHED`; `quota_exceeded`: the credits of the namespace"
MEMORY_REFUSED = "`snapshot_not_ready`; `snapshot_incompatible`: `details.differs`"
SNAPSHOT_RESPONSES = {
    201: serializers.SnapshotResponse,
    202: serializers.SnapshotResponse,
    200: serializers.SnapshotResponse,
    **refused(
        {
            400: "`validation_error`",
            402: f"`SNAPSHOT_LIMIT_REACHED`: `current` and `max`; {LIMITS}",
            403: SUSPENDED,
            409: f"{WRONG_STATE}; `conflict`: the name is taken; `idempotency_conflict`",
            503: UNAVAILABLE,
        }
    ),
}
RESTORE_REFUSED = refused(
    {
        400: "`validation_error`",
        402: f"`RUNNING_POOL_REACHED`; {LIMITS}",
        403: f"`RESOURCE_NOT_ALLOWED`: the sizes that the memory needs; {SUSPENDED}",
        409: f"{WRONG_STATE}; {MEMORY_REFUSED}; `NAMESPACE_LIMIT_REACHED`",
        503: UNAVAILABLE,
    }
)
FORK_REFUSED = refused(
    {
        400: "`validation_error`",
        402: f"`SANDBOX_LIMIT_REACHED`; `RUNNING_POOL_REACHED`; {LIMITS}",
        403: f"`RESOURCE_NOT_ALLOWED`; `forbidden`; {SUSPENDED}",
        409: f"{WRONG_STATE}; `NAMESPACE_LIMIT_REACHED`; `idempotency_conflict`",
        503: "`VM_UNAVAILABLE`: no room on the host (`details.resource`), or no copy was made (`details.forks`)",
    }
)


class SnapshotPagination(PagePagination):
    results_field = "snapshots"


class WorkspaceSnapshotsViewSet(ViewSet):
    """Snapshots of one workspace: copies of its disk and memory, both of one instant."""

    action_scopes = {"fork": NAMESPACE_SCOPES}

    @extend_schema(request=serializers.SnapshotRequest, responses=SNAPSHOT_RESPONSES)
    def create(self, request: ApiRequest, workspace_id: str) -> Response:
        """Keep disk and memory of the workspace, and wait until the snapshot is complete, at most
        `ready_timeout_seconds`; 202 if the wait ends first.

        A running workspace goes on, and stands still for a moment. The snapshot contains what the workspace contains:
        environment, keys, tokens, data of its programs.
        """
        return snapshot_response(request, requested_workspace(request.user, workspace_id, whole=True))

    @extend_schema(parameters=[serializers.SnapshotPage], responses=serializers.SnapshotsResponse)
    def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """List the snapshots of the workspace, newest first."""
        workspace = requested_workspace(request.user, workspace_id)
        query = validated_query(serializers.SnapshotPage, request)
        return _list(self, request, workspace_id=workspace.pk, search=query.get("search", ""))

    @extend_schema(
        request=serializers.RestoreRequest, responses={200: WorkspaceResponse, 202: GoingOnResponse, **RESTORE_REFUSED}
    )
    def restore(self, request: ApiRequest, workspace_id: str) -> Response:
        """Put the workspace back to one of its snapshots; what was since is lost.

        Id, address, URL, tokens and settings stay. With memory its programs go on as they were, with vCPUs and memory
        of the snapshot; without, it boots from the snapshot's disk.
        """
        workspace = requested_workspace(request.user, workspace_id)
        data = validated(serializers.RestoreRequest, request)
        operation = services.workspace_restore(
            actor=request.user, workspace=workspace, identifier=data.get("snapshot"), memory=data.get("memory")
        )
        return power_response(request, workspace, operation)

    @extend_schema(
        request=serializers.ForkRequest,
        responses={201: serializers.ForksResponse, 200: serializers.ForksResponse, **FORK_REFUSED},
    )
    def fork(self, request: ApiRequest, workspace_id: str) -> Response:
        """Make copies of the workspace as it is now, and wait for them, at most `ready_timeout_seconds`.

        A copy is a new workspace with an identity of its own: address, keys, tokens, host name. Its programs go on;
        connections of the parent are ended in it. There is an entry for each copy, in order; one that failed has an
        error, and its workspace stays `failed` until it is deleted.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        data = validated(serializers.ForkRequest, request)
        made = forks.workspace_fork(
            actor=request.user,
            workspace=workspace,
            new=serializers.new_forks(data),
            **idempotency_of(request, workspace, "fork"),
        )
        if data["wait_ready"]:
            outcomes.wait_for_copies(made.workspace_ids, data["ready_timeout_seconds"])
        found = outcomes.copy_entries(made.workspace_ids, lambda row: {"workspace": row})
        response = respond(serializers.ForksResponse, 200 if made.replayed else 201, forks=found)
        return mark_replayed(response, made.replayed)


class SnapshotViewSet(ViewSet):
    """Snapshots of all workspaces that the credential reaches."""

    @extend_schema(parameters=[serializers.SnapshotQuery], responses=serializers.SnapshotsResponse)
    def list(self, request: ApiRequest) -> Response:
        """List snapshots, newest first."""
        query = validated_query(serializers.SnapshotQuery, request)
        return _list(self, request, **{name: query[name] for name in query if name not in ("page", "limit")})

    @extend_schema(responses=serializers.SnapshotResponse)
    def retrieve(self, request: ApiRequest, snapshot_id: str) -> Response:
        """Return one snapshot by id."""
        snapshot = snapshot_selectors.get_snapshot(request.user, snapshot_id)
        return respond(serializers.SnapshotResponse, snapshot=snapshot)

    @extend_schema(
        request=serializers.ChangeRequest,
        responses={
            200: serializers.SnapshotResponse,
            **refused({400: "`validation_error`", 409: "`conflict`: the name is taken"}),
        },
    )
    def update(self, request: ApiRequest, snapshot_id: str) -> Response:
        """Change name and time to live."""
        snapshot = snapshot_selectors.get_snapshot(request.user, snapshot_id)
        changes = serializers.snapshot_changes(validated(serializers.ChangeRequest, request))
        changed = services.snapshot_change(snapshot=snapshot, changes=changes)
        return respond(serializers.SnapshotResponse, snapshot=changed)

    @extend_schema(request=None, responses={200: MessageResponse})
    def destroy(self, request: ApiRequest, snapshot_id: str) -> Response:
        """Delete a snapshot, from every state. Workspaces that were made from it live on."""
        snapshot = snapshot_selectors.get_snapshot(request.user, snapshot_id)
        services.snapshot_remove(snapshot=snapshot, actor=request.user.label)
        return respond(MessageResponse, message="The snapshot was deleted.")


def snapshot_response(request: ApiRequest, workspace: Workspace) -> Response:
    """Make a snapshot of a workspace or sandbox, wait for it, and return the response."""
    data = validated(serializers.SnapshotRequest, request)
    made = services.snapshot_create(
        actor=request.user,
        workspace=workspace,
        new=serializers.new_snapshot(data),
        **idempotency_of(request, workspace, "snapshot"),
    )
    ended = None
    if data["wait_ready"] and made.operation is not None:
        ended = waiting.wait_for_outcome(made.operation, data["ready_timeout_seconds"])
    if ended is not None and not made.replayed:
        require_success(ended)
    current = snapshot_selectors.get_snapshot(request.user, made.snapshot.pk)
    status = 200 if made.replayed else 202 if ended is None else 201
    return mark_replayed(respond(serializers.SnapshotResponse, status, snapshot=current), made.replayed)


def idempotency_of(request: ApiRequest, workspace: Workspace, route: str) -> dict[str, Any]:
    """Return the key of a request and the fingerprint of its options, among which is what it is for."""
    body = body_of(request)
    options = {**body, "route": f"{route}:{workspace.pk}"}
    return {"key": key_of(request, body), "fingerprint": fingerprint(options, ignore=ANSWER_FIELDS)}


def mark_replayed(response: Response, replayed: bool) -> Response:
    """Mark the response to a repeated request."""
    if replayed:
        response["Idempotent-Replay"] = "true"
    return response


def _list(view: ViewSet, request: ApiRequest, **filters: str) -> Response:
    paginator = SnapshotPagination()
    found = snapshot_selectors.listed_snapshots(request.user, **filters)
    rows = paginator.paginate_queryset(found, request, view=view)
    return respond(serializers.SnapshotsResponse, snapshots=rows, **paginator.page_fields())
