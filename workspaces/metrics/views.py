"""`/workspace/:id/stats`, `/info` and `/config` (specification, Metrics)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import refused
from common.responses import ok
from common.times import iso
from workspaces import representations
from workspaces.metrics import serializers
from workspaces.metrics.machine import machine_info
from workspaces.metrics.selectors import stats_of
from workspaces.models import Workspace
from workspaces.requested import requested_workspace


class MetricsViewSet(ViewSet):
    """A look at one workspace now."""

    @extend_schema(responses=serializers.StatsResponse)
    def stats(self, request: ApiRequest, workspace_id: str) -> Response:
        """How it is now, measured every second; zeros while it does not run. The guest's own figures are its word."""
        return ok(stats=stats_of(requested_workspace(request.user, workspace_id)))

    @extend_schema(responses={200: serializers.InfoResponse, **refused({503: "`VM_UNAVAILABLE`: its host is silent"})})
    def info(self, request: ApiRequest, workspace_id: str) -> Response:
        """The machine on its host: its state as the hypervisor says, its definition, and its counters."""
        workspace = requested_workspace(request.user, workspace_id, whole=True)
        return ok(info=info_body(workspace, machine_info(workspace)))

    @extend_schema(responses=serializers.ConfigResponse)
    def config(self, request: ApiRequest, workspace_id: str) -> Response:
        """What the machine is made from, as it is saved. Values of the environment are not shown."""
        return ok(config=raw_config(requested_workspace(request.user, workspace_id, whole=True)))


def info_body(row: Workspace, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row.pk,
        "status": row.status,
        "state": told["state"],
        "ready": row.ready,
        "ip": row.ip,
        "host": row.host_id,
        "image": row.image,
        "image_digest": row.image_digest or None,
        "start_time": iso(row.started_at) if row.is_running else None,
        "uptime": row.uptime(),
        "resources": {
            "cpus": representations.whole_or_fraction(row.applied_cpu_millis / 1000),
            "memory_mb": row.applied_memory_mb,
            "disk_size_mb": row.applied_disk_size_mb,
        },
        "error": representations.error_body(row),
        "machine": told["machine"],
        "counters": told["counters"],
    }


def raw_config(row: Workspace) -> dict[str, Any]:
    """The config of the details, and where the machine is."""
    return {
        "id": row.pk,
        "name": row.name,
        "status": row.status,
        "mode": row.mode,
        "ip": row.ip,
        "network": representations.network_body(row),
        **representations.config_body(row),
    }
