"""`/workspace/:id/stats`, `/info` and `/config` (specification, Metrics)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import refused
from common.responses import respond
from workspaces.metrics import serializers
from workspaces.metrics.machine import machine_info
from workspaces.metrics.selectors import stats_of
from workspaces.requested import requested_workspace


class MetricsViewSet(ViewSet):
    """Current state of one workspace."""

    @extend_schema(responses=serializers.StatsResponse)
    def stats(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return current statistics, sampled every second; zeros while it does not run. `guest*` is reported by the
        guest.
        """
        return respond(serializers.StatsResponse, stats=stats_of(requested_workspace(request.user, workspace_id)))

    @extend_schema(
        responses={200: serializers.InfoResponse, **refused({503: "`VM_UNAVAILABLE`: its host does not respond"})}
    )
    def info(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the machine on its host: its state as reported by the hypervisor, its definition and its counters."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        report = serializers.MachineReport(workspace, **machine_info(workspace))
        return respond(serializers.InfoResponse, info=report)

    @extend_schema(responses=serializers.ConfigResponse)
    def config(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the saved configuration of the machine. Values of the environment are not shown."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        return respond(serializers.ConfigResponse, workspace=workspace)
