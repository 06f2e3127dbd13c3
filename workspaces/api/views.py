"""`/workspace`: create, read, list, update, delete, quota, exec."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts import tokens
from accounts.authentication import ApiRequest
from accounts.hooks import Pin
from accounts.permissions import ACCOUNT_ONLY
from accounts.scopes import Scope
from common.connections import release_connection
from common.errors import Unauthorized
from common.idempotency import fingerprint, key_of
from common.openapi import MessageResponse
from common.pagination import bounds
from common.requests import validated, validated_query
from common.responses import ok
from vmbackend.backend import guest_pool
from vmbackend.guest.session import ExecResult
from workspaces import errors, selectors
from workspaces.api import bodies, requests, schemas
from workspaces.guests import address_of, guest_errors
from workspaces.lifecycle import activity
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationState
from workspaces.operations import waiting
from workspaces.services import create, delete, quota, update

DETAILS_TOKEN_SECONDS = 900
# How much longer than its command an exec request may take.
EXEC_SLACK_SECONDS = 20


class WorkspaceViewSet(ViewSet):
    """Lists and reads reach as far as the credential; creating needs an account- or namespace-scope one."""

    action_scopes = {
        "create": frozenset({Scope.ACCOUNT, Scope.NAMESPACE}),
        "quota": ACCOUNT_ONLY | {Scope.NAMESPACE},
    }

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Unauthorized) and self.action == "create":
            exc = errors.MissingUserId()
        return super().handle_exception(exc)

    @extend_schema(
        request=requests.CreateRequest,
        responses={
            201: schemas.WorkspaceResponse,
            202: schemas.AcceptedResponse,
            200: schemas.AcceptedResponse,
            **schemas.refused(
                {
                    400: "`INVALID_NAMESPACE`; `INVALID_NAME_LENGTH`; `INVALID_IMAGE`; `INVALID_CONFIG`; "
                    "`MISSING_REQUIRED_ENV`: a catalog entry's variables, `details.missing`; `validation_error`",
                }
            ),
        },
    )
    def create(self, request: ApiRequest) -> Response:
        """Create a workspace and wait until it is ready, at most `ready_timeout_seconds`.

        With `wait_ready` false, or when the wait runs out, 202 with the progress; creation goes on. A repeated
        idempotency key answers 200 with the same workspace. The client may go away at any time.
        """
        body = requests.body_of(request)
        key = key_of(request, body)
        new, data = requests.new_workspace(body)
        made = create.workspace_create(
            actor=request.user,
            new=new,
            key=key,
            fingerprint=fingerprint(body, ignore=requests.ANSWER_FIELDS),
        )
        if data["wait_ready"] and made.operation is not None:
            _wait_for_create(made.operation, made.workspace, data["ready_timeout_seconds"])
        return _created(request, made)

    @extend_schema(request=None, responses={202: schemas.AcceptedResponse})
    def retry(self, request: ApiRequest, workspace_id: str) -> Response:
        """Try a failed creation again; 202, and `provisioning` tells how it goes."""
        workspace = selectors.get(request.user, workspace_id)
        create.provisioning_retry(actor=request.user.label, workspace=workspace)
        return accepted(202, selectors.get(request.user, workspace.pk))

    @extend_schema(parameters=[requests.ListQuery], responses=schemas.ListResponse)
    def list(self, request: ApiRequest) -> Response:
        """Workspaces, newest first."""
        query = validated_query(requests.ListQuery, request)
        page, limit = query.pop("page"), query.pop("limit")
        rows = selectors.listed(request.user, **query)
        return ok(
            workspaces=bodies.list_body(list(rows[bounds(page, limit)])),
            total=selectors.total(request.user, rows, filtered=bool(query)),
            page=page,
            limit=limit,
        )

    @extend_schema(responses=schemas.WorkspaceResponse)
    def retrieve(self, request: ApiRequest, workspace_id: str) -> Response:
        """One workspace by id or slug."""
        return ok(workspace=bodies.workspace_body(selectors.get(request.user, workspace_id)))

    @extend_schema(responses=schemas.DetailsResponse)
    def details(self, request: ApiRequest, workspace_id: str) -> Response:
        """The workspace with its token (good for 15 minutes, for this workspace), statistics and configuration."""
        workspace = selectors.get(request.user, workspace_id, whole=True)
        extras = bodies.details_body(workspace, _token(request, workspace))
        return ok(workspace={**bodies.workspace_body(workspace), **extras}, **extras)

    @extend_schema(request=requests.UpdateRequest, responses=schemas.WorkspaceResponse)
    def update(self, request: ApiRequest, workspace_id: str) -> Response:
        """Change name, slug, logo and settings; settings of the machine apply at its next start."""
        workspace = selectors.get(request.user, workspace_id)
        changes = requests.workspace_changes(requests.body_of(request))
        changed = update.workspace_update(workspace=workspace, actor=request.user.label, changes=changes)
        return ok(workspace=bodies.workspace_body(changed))

    @extend_schema(request=None, responses={200: MessageResponse, 202: MessageResponse})
    def destroy(self, request: ApiRequest, workspace_id: str) -> Response:
        """Delete the workspace and all its data, from any state. 202 while its creation is being cancelled."""
        workspace = selectors.get(request.user, workspace_id)
        operation, creating = delete.workspace_delete(workspace=workspace, actor=request.user.label)
        if creating:
            return ok(202, accepted=True, message="The creation is cancelled and the workspace removed.")
        if operation is not None and not _removed(operation, workspace):
            return ok(202, accepted=True, message="The workspace is being removed.")
        return ok(message="The workspace and its data were removed.")

    @extend_schema(responses=schemas.QuotaResponse)
    def quota(self, request: ApiRequest) -> Response:
        """The plan's limits, the owned and the running pool, and whether another workspace can be created."""
        return ok(**quota.quota_object(request.user.account))

    @extend_schema(
        request=requests.ExecRequest,
        responses={
            200: schemas.ExecResponse,
            **schemas.refused({400: "`validation_error`; `command_invalid`", 409: "`vm_not_running`"}),
        },
    )
    def execute(self, request: ApiRequest, workspace_id: str) -> Response:
        """Run a command in the workspace to its end. At the timeout its whole process group is killed (code 124).

        At most 1 MiB of each stream is returned; `truncated` tells that there was more.
        """
        workspace = selectors.get(request.user, workspace_id, whole=True)
        data = validated(requests.ExecRequest, request)
        address = address_of(workspace)
        seconds = data["timeout_seconds"] + EXEC_SLACK_SECONDS
        release_connection()
        with activity.using(workspace.pk, seconds), guest_errors():
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


def accepted(status: int, workspace: Workspace) -> Response:
    """The body of what was accepted and goes on."""
    return ok(
        status,
        id=workspace.pk,
        ready=workspace.ready,
        provisioning=bodies.provisioning_body(workspace),
        workspace=bodies.workspace_body(workspace),
    )


def _created(request: ApiRequest, made: create.Created) -> Response:
    workspace = selectors.get(request.user, made.workspace.pk)
    if made.replayed:
        response = accepted(200, workspace)
        response["Idempotent-Replay"] = "true"
        return response
    # A main process that has ended already does not undo the creation.
    if workspace.provisioning_completed_at is not None:
        return ok(201, workspace=bodies.workspace_body(workspace))
    return accepted(202, workspace)


def _wait_for_create(operation: Operation, workspace: Workspace, timeout: float) -> None:
    """Raises CreateFailed with the reason where the creation ended in failure."""
    ended = waiting.wait(operation, timeout)
    if ended is None or ended.state != OperationState.FAILED:
        return
    raise errors.CreateFailed(
        ended.error_message,
        details={
            "id": workspace.pk,
            "provisioning": {"code": ended.error_code, "message": ended.error_message},
        },
    )


def _removed(operation: Operation, workspace: Workspace) -> bool:
    """Wait for a removal, but not for one whose host is silent: it is carried out when the host is back."""
    if workspace.host is None or not workspace.host.is_alive:
        return False
    ended = waiting.wait(operation, settings.ENV.power_seconds)
    return ended is not None and ended.state != OperationState.FAILED


def _token(request: ApiRequest, workspace: Workspace) -> str:
    pin = Pin(workspace.namespace_id, workspace.namespace_slug, workspace.pk)
    minted = tokens.mint(actor=request.user, scope=Scope.WORKSPACE, pin=pin, ttl=DETAILS_TOKEN_SECONDS, label="details")
    return minted.token
