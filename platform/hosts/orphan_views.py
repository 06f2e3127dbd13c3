"""`/staff/hosts/:id/orphans` (wire contract, section 11)."""

from __future__ import annotations

from typing import ClassVar

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from common.errors import DomainError
from common.openapi import refused
from common.requests import validated, validated_query
from common.responses import respond
from hosts import orphan_bodies as bodies
from hosts.authentication import ACT, READ, StaffAuthentication, StaffPermission, StaffRequest, member_of
from hosts.selectors import get_host
from hosts.serializers import ReasonRequest
from staff.audit import Target, record_entry
from staff.models import Outcome
from vmbackend.models import Host
from workspaces.kept_orphans import listed_orphans, orphans_remove, prepare_put_back, put_back_complete
from workspaces.models import Workspace

NOT_PUT_BACK = (
    "`epoch_conflict`: the workspace has newer files, or runs; `operation_in_progress`; `invalid_state`: the host is "
    "not active, or the workspace is failed or destroyed"
)
NOT_KEPT = "`not_found`: no such host, or it keeps nothing of this workspace"
NO_ANSWER = "`VM_UNAVAILABLE`: the host does not answer"


class OrphanViewSet(ViewSet):
    """Files that a host keeps of machines that are not its own any more, for staff."""

    authentication_classes = [StaffAuthentication]
    permission_classes = [StaffPermission]
    needs: ClassVar[dict[str, str]] = {"list": READ, "put_back": ACT, "destroy": ACT}

    @extend_schema(responses=bodies.OrphansResponse)
    def list(self, request: StaffRequest, host_id: str) -> Response:
        """List what the host keeps, the oldest first. It reports that once a minute, and after each change by staff;
        what it has kept for seven days it removes.
        """
        host = get_host(host_id)
        kept = listed_orphans(host)
        rows = {key: (status, epoch) for key, status, epoch in _states({orphan["machine_id"] for orphan in kept})}
        return respond(bodies.OrphansResponse, orphans=bodies.orphan_objects(kept, rows))

    @extend_schema(
        request=ReasonRequest,
        responses={200: bodies.PutBackResponse, **refused({404: NOT_KEPT, 409: NOT_PUT_BACK, 503: NO_ANSWER})},
    )
    def put_back(self, request: StaffRequest, host_id: str, workspace_id: str) -> Response:
        """Give a workspace the files that the host has kept of it: it is `stopped`, on this host, with that disk.

        Of several the newest epoch is taken. Saved memory is not used again. Its address stays if it is one of this
        host's.
        """
        host = get_host(host_id)
        reason = validated(ReasonRequest, request)["reason"]
        member = member_of(request)
        planned = prepare_put_back(host=host, workspace_id=workspace_id)
        with transaction.atomic():
            row = put_back_complete(planned=planned, actor=member.actor, reason=reason)
            record_entry(member, "workspace.put_back", Target.of(row), reason=reason, detail=f"on {host.name}")
        return respond(
            bodies.PutBackResponse, workspace_id=row.pk, status=row.status, host=host.name, ip=row.ip, epoch=row.epoch
        )

    @extend_schema(
        request=None,
        parameters=[bodies.RemoveOrphanRequest],
        responses={200: bodies.RemovedOrphansResponse, **refused({404: NOT_KEPT, 503: NO_ANSWER})},
    )
    def destroy(self, request: StaffRequest, host_id: str, workspace_id: str) -> Response:
        """Remove at once what the host keeps of a workspace: all of it, or that of `name`. The workspace stays.

        `reason` and `name` are read from a JSON body, or from the query if there is no body.
        """
        host = get_host(host_id)
        reading = validated if request.data else validated_query
        data = reading(bodies.RemoveOrphanRequest, request)
        removed = _remove(request, host, workspace_id, data.get("name", ""), data["reason"])
        return respond(bodies.RemovedOrphansResponse, removed=removed)


def _states(ids: set[str]) -> list[tuple[str, str, int]]:
    return list(Workspace.objects.filter(pk__in=ids).values_list("pk", "status", "epoch"))


def _remove(request: StaffRequest, host: Host, workspace_id: str, name: str, reason: str) -> list[str]:
    """Remove orphans, which no transaction takes back: the entry before it says that it has begun."""

    def record(outcome: Outcome, detail: str) -> None:
        act, target = "host.remove_orphans", Target.of(host)
        record_entry(member_of(request), act, target, outcome=outcome, reason=reason, detail=detail)

    record(Outcome.BEGUN, f"{workspace_id} {name}".rstrip())
    try:
        removed = orphans_remove(host=host, workspace_id=workspace_id, name=name)
    except DomainError as error:
        record(Outcome.REFUSED, f"{workspace_id}: {error.message}")
        raise
    record(Outcome.DONE, ", ".join(removed))
    return removed
