"""`/workspace`: create, read, list, update, delete, quota."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts import tokens
from accounts.actors import Actor
from accounts.authentication import ApiRequest
from accounts.permissions import NAMESPACE_SCOPES
from accounts.scopes import Scope, ScopeBinding
from common.errors import Unauthorized
from common.idempotency import fingerprint, key_of
from common.openapi import MessageResponse, refused
from common.pagination import PagePagination
from common.requests import body_of, validated_query
from common.responses import respond
from namespaces.selectors import require_own_namespace
from namespaces.serializers import NAMESPACE_GONE
from workspaces import errors, quota, selectors
from workspaces.crud import serializers, services
from workspaces.crud.estimate import EstimateQuery, EstimateResponse, estimated_size, workspace_estimate
from workspaces.metrics.selectors import stats_of
from workspaces.models import Workspace
from workspaces.requested import requested_workspace
from workspaces.serializers import GoingOnResponse, WorkspaceResponse, load_ports
from workspaces.wait_response import stored_response, wait_for_create, wait_for_removal


class WorkspacePagination(PagePagination):
    """Pagination. `filtered`: the list has fewer rows than the actor may see, so that they must be counted."""

    results_field = "workspaces"

    def __init__(self, actor: Actor, *, filtered: bool) -> None:
        self.actor = actor
        self.filtered = filtered

    def count_rows(self, queryset: Any, request: Request) -> int:
        return selectors.total_count(self.actor, queryset, filtered=self.filtered)


DETAILS_TOKEN_SECONDS = 900
CREATE_REFUSALS = {
    400: "`INVALID_NAMESPACE`; `INVALID_NAME_LENGTH`; `INVALID_IMAGE`; `INVALID_CONFIG`; "
    "`MISSING_REQUIRED_ENV`: a catalog entry's variables, `details.missing`; `validation_error`",
    401: "`MISSING_USER_ID`: the credential is missing, wrong or expired",
    402: "`SANDBOX_LIMIT_REACHED`: workspaces of the plan; `POOL_LIMIT_REACHED`; `RUNNING_POOL_REACHED`; "
    "`quota_exceeded`: the credits of the namespace",
    403: "`RESOURCE_NOT_ALLOWED`: more than the plan allows for one workspace, or a `placement` that it forbids; "
    "`forbidden`; `namespace_suspended`",
    404: "`not_found`: the namespace, the snapshot, or the workspace that `placement.near` names",
    409: "`NAMESPACE_LIMIT_REACHED`; `slug_taken`; `idempotency_conflict`: the key was used with other options; "
    "`snapshot_not_ready`; `snapshot_incompatible`: `details.differs`",
    500: "`CREATE_FAILED`: the message says what went wrong",
}
UPDATE_REFUSALS = {
    400: "`validation_error`; `INVALID_CONFIG`; `MISSING_REQUIRED_ENV`: a catalog entry's variables",
    409: "`slug_taken`; `conflict`: it is being removed",
}


class WorkspaceViewSet(ViewSet):
    """Workspaces. Lists and reads cover the scope of the credential; creating requires account or namespace scope."""

    action_scopes = {"create": NAMESPACE_SCOPES, "quota": NAMESPACE_SCOPES, "estimate": NAMESPACE_SCOPES}

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Unauthorized) and self.action == "create":
            exc = errors.MissingUserId()
        return super().handle_exception(exc)

    @extend_schema(
        request=serializers.CreateRequest,
        responses={
            201: WorkspaceResponse,
            202: serializers.AcceptedResponse,
            200: serializers.AcceptedResponse,
            **refused(CREATE_REFUSALS),
        },
    )
    def create(self, request: ApiRequest) -> Response:
        """Create a workspace and wait until it is ready, at most `ready_timeout_seconds`.

        `cpus`, `memory_mb` and `disk_size_mb` may also be given beside `config`, there also as `vcpus`, `ram_mb` and
        `disk_mb`. With `snapshot` it is made from one, on its host and in its namespace: image, preset, sizes that are
        left out, network policy and workloads are the snapshot's, and `env` is added to its own.

        With `wait_ready` false, or when the wait runs out, the response is 202 with the progress; the creation
        continues. A repeated idempotency key returns 200 with the same workspace. The creation continues if the client
        disconnects.
        """
        body = body_of(request)
        key = key_of(request, body)
        new, data = serializers.new_workspace(body)
        made = services.workspace_create(
            actor=request.user,
            new=new,
            key=key,
            fingerprint=fingerprint(body, ignore=serializers.ANSWER_FIELDS),
        )
        if data["wait_ready"] and made.operation is not None:
            wait_for_create(made.operation, made.workspace.pk, data["ready_timeout_seconds"])
        return _created(request, made)

    @extend_schema(
        request=None,
        responses={
            202: serializers.AcceptedResponse,
            **refused(
                {
                    402: "`RUNNING_POOL_REACHED`; `quota_exceeded`: the credits of the namespace",
                    409: "`invalid_state`: its creation has not failed; `snapshot_not_ready`: the snapshot that it was "
                    "to be made from is gone",
                }
            ),
        },
    )
    def retry(self, request: ApiRequest, workspace_id: str) -> Response:
        """Try a failed creation again. Answers 202; `provisioning` shows the progress."""
        workspace = requested_workspace(request.user, workspace_id)
        services.provisioning_retry(actor=request.user.label, workspace=workspace)
        return accepted_response(202, selectors.get_workspace(request.user, workspace.pk))

    @extend_schema(parameters=[serializers.ListQuery], responses=serializers.ListResponse)
    def list(self, request: ApiRequest) -> Response:
        """List workspaces, newest first. Sandboxes are listed by `GET /sandbox`. Every other route here also takes the
        id of a sandbox's machine (`sandbox.workspace_id`).
        """
        query = validated_query(serializers.ListQuery, request)
        filters = {name: value for name, value in query.items() if name not in ("page", "limit")}
        paginator = WorkspacePagination(request.user, filtered=bool(filters))
        rows = paginator.paginate_queryset(selectors.listed_workspaces(request.user, **filters), request, view=self)
        load_ports(rows)
        return respond(serializers.ListResponse, workspaces=rows, **paginator.page_fields())

    @extend_schema(responses=WorkspaceResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return one workspace by id or slug."""
        return respond(WorkspaceResponse, workspace=requested_workspace(request.user, workspace_id))

    @extend_schema(responses=serializers.DetailsResponse)
    def details(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the workspace with its token (valid for 15 minutes, for this workspace), statistics and
        configuration.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        details = serializers.Details(workspace, _token(request, workspace), stats_of(workspace))
        return Response(serializers.DetailsResponse(details).data)

    @extend_schema(
        request=serializers.UpdateRequest,
        responses={200: WorkspaceResponse, 202: GoingOnResponse, **refused(UPDATE_REFUSALS)},
    )
    def update(self, request: ApiRequest, workspace_id: str) -> Response:
        """Change name, slug, logo and settings; settings of the machine apply at its next start. 202 while its
        host is away.
        """
        workspace = requested_workspace(request.user, workspace_id)
        changes = serializers.workspace_changes(body_of(request))
        changed = services.workspace_update(workspace=workspace, actor=request.user.label, changes=changes)
        return stored_response(workspace, respond(WorkspaceResponse, workspace=changed))

    @extend_schema(
        parameters=[serializers.DeleteRequest],
        request=serializers.DeleteRequest,
        responses={200: MessageResponse, 202: MessageResponse, **refused({400: "`validation_error`"})},
    )
    def destroy(self, request: ApiRequest, workspace_id: str) -> Response:
        """Delete the workspace and all its data, from any state. 202 while its creation is being cancelled.

        Its snapshots are deleted, too, unless `keep_snapshots` is true, in the query or in the body.
        """
        workspace = requested_workspace(request.user, workspace_id)
        operation, creating = services.workspace_delete(
            workspace=workspace, actor=request.user.label, keep_snapshots=serializers.keeps_snapshots(request)
        )
        if creating:
            message = "The creation is being cancelled and the workspace removed."
            return respond(MessageResponse, 202, accepted=True, message=message)
        if operation is not None and not wait_for_removal(operation, workspace):
            return respond(MessageResponse, 202, accepted=True, message="The workspace is being removed.")
        return respond(MessageResponse, message="The workspace and its data were removed.")

    @extend_schema(responses={200: serializers.QuotaResponse, **refused(NAMESPACE_GONE)})
    def quota(self, request: ApiRequest) -> Response:
        """Return the plan's limits, the owned and the running pool, and whether another workspace can be created."""
        require_own_namespace(request.user)
        return Response(serializers.QuotaResponse(quota.account_quota(request.user.account)).data)

    @extend_schema(parameters=[EstimateQuery], responses={200: EstimateResponse, **refused(NAMESPACE_GONE)})
    def estimate(self, request: ApiRequest) -> Response:
        """Return the price of a workspace of this size for an hour of full use, and whether one could be created now:
        within the plan and the pools, and on a host with room. Sizes that are left out have the defaults of a create.
        Nothing is reserved. Traffic of disk and network is charged as it occurs.
        """
        require_own_namespace(request.user)
        wanted = estimated_size(validated_query(EstimateQuery, request))
        return respond(EstimateResponse, estimate=workspace_estimate(request.user.account, wanted))


def accepted_response(status: int, workspace: Workspace) -> Response:
    """Return the response with the workspace and the progress of its creation."""
    return respond(serializers.AcceptedResponse, status, workspace=workspace)


def _created(request: ApiRequest, made: services.Created) -> Response:
    workspace = requested_workspace(request.user, made.workspace.pk)
    if made.replayed:
        response = accepted_response(200, workspace)
        response["Idempotent-Replay"] = "true"
        return response
    # The creation succeeded even if the main process has exited since.
    if workspace.provisioning_completed_at is not None:
        return respond(WorkspaceResponse, 201, workspace=workspace)
    return accepted_response(202, workspace)


def _token(request: ApiRequest, workspace: Workspace) -> str:
    binding = ScopeBinding(workspace.namespace_id, workspace.namespace_slug, workspace.pk)
    minted = tokens.mint_token(
        actor=request.user, scope=Scope.WORKSPACE, binding=binding, ttl=DETAILS_TOKEN_SECONDS, label="details"
    )
    return minted.token
