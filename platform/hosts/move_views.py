"""`/staff/workspaces/:id/move` (wire contract, section 11)."""

from __future__ import annotations

from typing import ClassVar

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from common.errors import NotFound
from common.openapi import refused
from common.requests import validated
from common.responses import respond
from hosts import move_bodies as bodies
from hosts.authentication import ACT, StaffAuthentication, StaffPermission, StaffRequest, member_of
from hosts.selectors import find_host
from staff.audit import Target, record_entry
from workspaces.models import Workspace
from workspaces.moves.selectors import shown_move
from workspaces.moves.services import MoveRequest, move_cancel, workspace_move

NOT_MOVABLE = (
    "`invalid_state`: it is not running, stopped or asleep; `operation_in_progress`; `same_host`; `host_full`; "
    "`host_not_active`; `host_unfit`: the hosts differ, as `details` say; `static_address`: it is to keep its address"
)


class MoveViewSet(ViewSet):
    """The move of a workspace, for staff."""

    authentication_classes = [StaffAuthentication]
    permission_classes = [StaffPermission]
    needs: ClassVar[dict[str, str]] = {"create": ACT, "destroy": ACT}

    @extend_schema(
        request=bodies.MoveWorkspaceRequest,
        responses={
            202: bodies.MoveResponse,
            **refused({409: NOT_MOVABLE, 503: "`VM_UNAVAILABLE`: its host cannot be reached"}),
        },
    )
    def create(self, request: StaffRequest, workspace_id: str) -> Response:
        """Move a workspace to another host. It keeps its files, its snapshots and, if the hosts are alike, its memory;
        its address changes. A running one stands still only while its memory and what it wrote last are copied.
        """
        workspace = _workspace(workspace_id)
        data = validated(bodies.MoveWorkspaceRequest, request)
        asked = MoveRequest(
            data["reason"],
            to=find_host(data["to"]) if data.get("to") else None,
            memory=data["memory"],
            new_address=data.get("address") == "new",
        )
        with transaction.atomic():
            move = workspace_move(workspace=workspace, asked=asked, actor=member_of(request).actor)
            record_entry(member_of(request), "workspace.move", Target.of(workspace), reason=asked.reason)
        return respond(bodies.MoveResponse, 202, operation=shown_move(move))

    @extend_schema(
        request=None,
        responses={
            202: bodies.MoveResponse,
            **refused({409: "`move_committed`: it is on the new host; `invalid_state`: it does not move"}),
        },
    )
    def destroy(self, request: StaffRequest, workspace_id: str) -> Response:
        """End a move before its commit: the workspace goes on where it is."""
        workspace = _workspace(workspace_id)
        with transaction.atomic():
            move = move_cancel(workspace=workspace, actor=member_of(request).actor)
            record_entry(member_of(request), "workspace.cancel_move", Target.of(workspace))
        return respond(bodies.MoveResponse, 202, operation=shown_move(move))


def _workspace(workspace_id: str) -> Workspace:
    found = Workspace.objects.select_related("account__plan", "host").filter(pk=workspace_id).first()
    if found is None:
        raise NotFound("There is no such workspace.")
    return found
