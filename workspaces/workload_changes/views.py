"""`/workspace/:id/workloads` (wire contract, section 3: added routes). Their logs are those of `workspaces.logs`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.async_threads import in_request_thread
from common.async_views import AsyncViewSet
from common.openapi import refused
from common.requests import validated
from common.responses import respond
from workspaces.models import Workspace
from workspaces.requested import requested_workspace
from workspaces.workload_changes import selectors, serializers, services, usage

NOT_FOUND = "`not_found`; `workload_not_found`"
OUTDATED = "`guest_kit_outdated`: it has run since before an upgrade of the platform, and needs a restart for this"
RUNS = f"`vm_not_running`; {OUTDATED}"


class WorkloadsViewSet(ViewSet):
    """Supervised programs beside the main one, listed and changed while the workspace runs.

    A change is saved and applied in the running guest immediately; if that is not possible, `applied` is false and it
    applies when the workspace runs again. A program that is changed or removed gets SIGTERM, and SIGKILL after 5 s.
    """

    @extend_schema(responses={200: serializers.WorkloadsResponse, **refused({409: OUTDATED})})
    def list(self, request: ApiRequest, workspace_id: str) -> Response:
        """List saved workloads, and the state of their processes in the running guest. If the workspace does not run,
        all of them are `stopped`.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        return respond(serializers.WorkloadsResponse, workloads=selectors.workloads_of(workspace))

    @extend_schema(
        request=serializers.WorkloadRequest,
        responses={
            201: serializers.WorkloadChangedResponse,
            **refused({409: "`workload_exists`; `workload_limit_exceeded`; `vm_missing`"}),
        },
    )
    def create(self, request: ApiRequest, workspace_id: str) -> Response:
        """Add a workload (at most 32). In a running guest it starts within some seconds."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        item = dict(validated(serializers.WorkloadRequest, request))
        changed = services.workload_add(workspace=workspace, actor=request.user.label, item=item)
        return _changed_response(changed, item["name"], 201)

    @extend_schema(responses={200: serializers.WorkloadResponse, **refused({404: NOT_FOUND, 409: OUTDATED})})
    def retrieve(self, request: ApiRequest, workspace_id: str, workload_id: str) -> Response:
        """Return one workload, by its name."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        return _found_response(workspace, workload_id)

    @extend_schema(responses={200: serializers.WorkloadResponse, **refused({404: NOT_FOUND, 409: OUTDATED})})
    def status(self, request: ApiRequest, workspace_id: str, workload_id: str) -> Response:
        """Return the workload itself: its state and process."""
        return self.retrieve(request, workspace_id, workload_id)

    @extend_schema(
        request=serializers.WorkloadPatch,
        responses={
            200: serializers.WorkloadChangedResponse,
            **refused({400: "`validation_error`", 404: NOT_FOUND, 409: "`vm_missing`"}),
        },
    )
    def update(self, request: ApiRequest, workspace_id: str, workload_id: str) -> Response:
        """Change the given fields of a saved workload; PUT and PATCH are equivalent.

        Its program restarts if anything is different. With `enabled` false it ends.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        changes: dict[str, Any] = dict(validated(serializers.WorkloadPatch, request))
        changed = services.workload_change(
            workspace=workspace, actor=request.user.label, name=workload_id, changes=changes
        )
        return _changed_response(changed, workload_id)

    @extend_schema(
        responses={
            200: serializers.WorkloadRemovedResponse,
            **refused({404: NOT_FOUND, 409: "`vm_missing`; `guest_kit_outdated`: none of this name is saved"}),
        }
    )
    def destroy(self, request: ApiRequest, workspace_id: str, workload_id: str) -> Response:
        """End and remove a workload; its log stays. The response shows the workload as it was."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        found = selectors.find_removable(workspace, workload_id)
        changed = services.workload_remove(workspace=workspace, actor=request.user.label, name=workload_id)
        problem = services.apply_in_guest(changed, workload_id)
        gone = selectors.WorkloadFound(found.name, found.item, None if problem is None else found.state)
        message = f"The workload {found.name} was removed."
        return respond(
            serializers.WorkloadRemovedResponse,
            workload=gone,
            applied=problem is None,
            problem=problem,
            message=message,
        )

    @extend_schema(
        operation_id="workspace_workloads_destroy_all",
        request=None,
        responses={200: serializers.WorkloadsRemovedResponse, **refused({409: "`vm_missing`"})},
    )
    def destroy_all(self, request: ApiRequest, workspace_id: str) -> Response:
        """End and remove all saved workloads; their logs stay. Workloads that only the guest has stay, such as a
        desktop's.
        """
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        count = services.workloads_remove(workspace=workspace, actor=request.user.label)
        problem = services.end_removed(workspace) if count else None
        return respond(
            serializers.WorkloadsRemovedResponse,
            message="The workloads were removed.",
            removed=count,
            applied=problem is None,
            problem=problem,
        )

    @extend_schema(
        request=None,
        responses={
            200: serializers.WorkloadResponse,
            **refused({404: NOT_FOUND, 409: f"`workload_disabled`; {RUNS}"}),
        },
    )
    def start(self, request: ApiRequest, workspace_id: str, workload_id: str) -> Response:
        """Start a workload that ended or was stopped. A workload that runs is left as it is."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        services.workload_start(workspace=workspace, actor=request.user.label, name=workload_id)
        return _found_response(workspace, workload_id)

    @extend_schema(request=None, responses={200: serializers.WorkloadResponse, **refused({404: NOT_FOUND, 409: RUNS})})
    def stop(self, request: ApiRequest, workspace_id: str, workload_id: str) -> Response:
        """Stop a workload until it is started by hand, or until the next start of the workspace."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        services.workload_stop(workspace=workspace, actor=request.user.label, name=workload_id)
        return _found_response(workspace, workload_id)


class WorkloadStatsViewSet(AsyncViewSet):
    """Present usage of workloads."""

    http_method_names = ["get"]

    @extend_schema(responses={200: serializers.WorkloadStatsResponse, **refused({404: NOT_FOUND, 409: OUTDATED})})
    async def retrieve(self, request: ApiRequest, workspace_id: str, workload_id: str) -> Response:
        """Return CPU and memory that a workload uses at present, measured for half a second."""
        place, is_saved = await in_request_thread(usage.find_place, request.user, workspace_id, workload_id)
        stats = await usage.workload_stats(place, workload_id, is_saved=is_saved)
        return Response(serializers.WorkloadStatsResponse({"stats": stats}).data)


def _found_response(workspace: Workspace, name: str) -> Response:
    return respond(serializers.WorkloadResponse, workload=selectors.find_workload(workspace, name))


def _changed_response(workspace: Workspace, name: str, status: int = 200) -> Response:
    """Apply the row in the guest and report it."""
    item = services.saved_item(workspace, name)
    problem = services.apply_in_guest(workspace, name)
    state = None if problem else selectors.state_after_change(workspace, name)
    return _respond_changed(selectors.WorkloadFound(name, item, state), problem, status)


def _respond_changed(found: selectors.WorkloadFound, problem: str | None, status: int = 200) -> Response:
    return respond(
        serializers.WorkloadChangedResponse, status, workload=found, applied=problem is None, problem=problem
    )
