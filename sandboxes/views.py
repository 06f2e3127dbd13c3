"""`/sandbox`: the account level of the sandbox service."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import NAMESPACE_SCOPES
from common.errors import ValidationError
from common.idempotency import fingerprint, key_of
from common.openapi import MessageResponse, refused
from common.pagination import PagePagination
from common.request_origin import request_origin
from common.requests import body_of, validated_query
from common.responses import respond
from sandboxes import selectors, serializers, services
from sandboxes.ids import sandbox_id_of
from workspaces.crud.serializers import ANSWER_FIELDS, DeleteRequest, keeps_snapshots
from workspaces.metrics.selectors import percentages, stats_of
from workspaces.models import Operation, Workspace
from workspaces.wait_response import (
    NO_CAPACITY,
    SUSPENDED,
    UNAVAILABLE,
    WRONG_STATE,
    wait_for_create,
    wait_for_removal,
    wait_until_finished,
)

RESPONSES = {200: serializers.SandboxResponse, 202: serializers.SandboxGoingOnResponse}
STOP_RESPONSES = {**RESPONSES, **refused({409: WRONG_STATE, 503: UNAVAILABLE})}
START_RESPONSES = {**STOP_RESPONSES, **refused({402: NO_CAPACITY, 403: SUSPENDED})}


class SandboxPagination(PagePagination):
    results_field = "sandboxes"


class SandboxViewSet(ViewSet):
    """Sandboxes: machines of their own kind, each with one token and one address.

    A sandbox counts in the account's pools, its number of workspaces, its namespaces and its credits as any workspace;
    `GET /workspace` does not list it, and the routes of one workspace take it by `workspace_id`.
    """

    action_scopes = {"create": NAMESPACE_SCOPES}

    @extend_schema(
        request=serializers.CreateSandboxRequest,
        responses={
            201: serializers.NewSandboxResponse,
            202: serializers.NewSandboxResponse,
            200: serializers.NewSandboxResponse,
            **refused(
                {
                    400: "`validation_error`; `INVALID_NAMESPACE`; `INVALID_NAME_LENGTH`; `INVALID_IMAGE`; "
                    "`INVALID_CONFIG`; `MISSING_REQUIRED_ENV`",
                    402: "`SANDBOX_LIMIT_REACHED`; `POOL_LIMIT_REACHED`; `RUNNING_POOL_REACHED`; `quota_exceeded`",
                    403: "`RESOURCE_NOT_ALLOWED`; `namespace_suspended`",
                    404: "`not_found`: the namespace, or the snapshot",
                    409: "`NAMESPACE_LIMIT_REACHED`; `idempotency_conflict`; `snapshot_not_ready`; "
                    "`snapshot_incompatible`",
                }
            ),
        },
    )
    def create(self, request: ApiRequest) -> Response:
        """Create a sandbox and wait until it is ready, at most `ready_timeout_seconds`. `token` is shown only here.

        With `wait_ready` false, or when the wait runs out, 202 with `status` `creating`. A repeated idempotency key
        returns 200 with the same sandbox, without its token. The creation continues if the client disconnects.
        """
        body = body_of(request)
        key = key_of(request, body)
        new, data = serializers.new_sandbox(body)
        try:
            made = services.sandbox_create(
                actor=request.user,
                new=new,
                key=key,
                fingerprint=fingerprint({**body, "route": "sandbox"}, ignore=ANSWER_FIELDS),
                origin=request_origin(request._request),
            )
        except ValidationError as exc:
            raise serializers.as_template_error(exc) from exc
        if data["wait_ready"] and made.operation is not None:
            shown = sandbox_id_of(made.workspace.pk)
            wait_for_create(made.operation, shown, data["ready_timeout_seconds"])
        return _created(request, made)

    @extend_schema(parameters=[serializers.ListSandboxesQuery], responses=serializers.SandboxesResponse)
    def list(self, request: ApiRequest) -> Response:
        """Sandboxes, newest first, without their tokens."""
        query = validated_query(serializers.ListSandboxesQuery, request)
        filters = {name: value for name, value in query.items() if name not in ("page", "limit")}
        paginator = SandboxPagination()
        rows = paginator.paginate_queryset(selectors.listed_sandboxes(request.user, **filters), request, view=self)
        return respond(serializers.SandboxesResponse, sandboxes=rows, **paginator.page_fields())

    @extend_schema(responses=serializers.SandboxResponse)
    def retrieve(self, request: ApiRequest, sandbox_id: str) -> Response:
        """One sandbox, without its token."""
        return respond(serializers.SandboxResponse, sandbox=selectors.requested_sandbox(request.user, sandbox_id))

    @extend_schema(
        parameters=[DeleteRequest],
        request=DeleteRequest,
        responses={200: MessageResponse, 202: MessageResponse, **refused({400: "`validation_error`"})},
    )
    def destroy(self, request: ApiRequest, sandbox_id: str) -> Response:
        """Delete the sandbox and all its data, from any state. Its token ends immediately.

        202 while the removal of its machine goes on. Its snapshots are deleted, too, unless `keep_snapshots` is true.
        """
        workspace = selectors.requested_sandbox(request.user, sandbox_id)
        kept = keeps_snapshots(request)
        operation, creating = services.sandbox_delete(workspace=workspace, keep_snapshots=kept, **_by(request))
        if creating or (operation is not None and not wait_for_removal(operation, workspace)):
            return respond(MessageResponse, 202, accepted=True, message="The sandbox is being removed.")
        return respond(MessageResponse, message="The sandbox and its data were removed.")

    @extend_schema(request=None, responses=START_RESPONSES)
    def start(self, request: ApiRequest, sandbox_id: str) -> Response:
        """Start a sandbox; a suspended one goes on where it was. Idempotent."""
        workspace = selectors.requested_sandbox(request.user, sandbox_id)
        return sandbox_power_response(request, workspace, services.sandbox_start(workspace=workspace, **_by(request)))

    @extend_schema(request=None, responses=STOP_RESPONSES)
    def stop(self, request: ApiRequest, sandbox_id: str) -> Response:
        """Shut a sandbox down; its data is preserved. Idempotent."""
        workspace = selectors.requested_sandbox(request.user, sandbox_id)
        return sandbox_power_response(request, workspace, services.sandbox_stop(workspace=workspace, **_by(request)))

    @extend_schema(request=None, responses=START_RESPONSES)
    def restart(self, request: ApiRequest, sandbox_id: str) -> Response:
        """Shut a running sandbox down and start it; saved settings are applied."""
        workspace = selectors.requested_sandbox(request.user, sandbox_id)
        return sandbox_power_response(request, workspace, services.sandbox_restart(workspace=workspace, **_by(request)))

    @extend_schema(request=None, responses=serializers.SandboxTokenResponse)
    def regenerate_token(self, request: ApiRequest, sandbox_id: str) -> Response:
        """Replace the token. The old one is refused immediately; its open WebSockets, downloads and uploads end within
        a second.
        """
        workspace = selectors.requested_sandbox(request.user, sandbox_id)
        token = services.token_regenerate(workspace=workspace, **_by(request))
        return respond(serializers.SandboxTokenResponse, token=token, sandbox={"id": sandbox_id_of(workspace.pk)})

    @extend_schema(responses=serializers.SandboxMetricsResponse)
    def metrics(self, request: ApiRequest, sandbox_id: str) -> Response:
        """Current use, sampled every second; zeros while it does not run."""
        workspace = selectors.requested_sandbox(request.user, sandbox_id)
        return respond(serializers.SandboxMetricsResponse, metrics=_metrics(workspace))


def _by(request: ApiRequest) -> dict[str, Any]:
    """Return the actor and origin for the audit entry."""
    return {"actor": request.user.label, "origin": request_origin(request._request)}


def _created(request: ApiRequest, made: services.CreatedSandbox) -> Response:
    current = selectors.requested_sandbox(request.user, sandbox_id_of(made.workspace.pk))
    shown = services.CreatedSandbox(current, made.token, made.operation)
    if made.token is None:
        response = respond(serializers.NewSandboxResponse, sandbox=shown)
        response["Idempotent-Replay"] = "true"
        return response
    status = 201 if current.provisioning_completed_at is not None else 202
    return respond(serializers.NewSandboxResponse, status, sandbox=shown)


def sandbox_power_response(request: ApiRequest, workspace: Workspace, operation: Operation | None) -> Response:
    """Raise what `wait_until_finished` raises, and NotFound if it was deleted during the wait."""
    ended = operation is None or wait_until_finished(operation)
    current = selectors.get_sandbox(request.user, sandbox_id_of(workspace.pk))
    if ended:
        return respond(serializers.SandboxResponse, sandbox=current)
    return respond(serializers.SandboxGoingOnResponse, 202, accepted=True, sandbox=current)


def _metrics(workspace: Workspace) -> dict[str, Any]:
    stats = stats_of(workspace)
    return {**percentages(stats), "uptime": stats["uptime"]}
