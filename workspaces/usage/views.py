"""`/workspace/usage`, `/workspace/activity` and `/workspace/:id/usage` (specification, Usage and activity)."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import MessageResponse, refused
from common.responses import ok
from common.times import from_epoch, iso
from workspaces.models import Activity
from workspaces.requested import requested_workspace
from workspaces.usage import charts, serializers, services
from workspaces.usage import selectors as usage
from workspaces.usage.amounts import Point
from workspaces.usage.tiers import TIERS, Tier

INVALID = refused({400: "`validation_error`"})


class AllUsageViewSet(ViewSet):
    """Over all workspaces that the credential reaches."""

    @extend_schema(operation_id="workspace_usage_all", responses=serializers.AllUsageResponse)
    def totals(self, request: ApiRequest) -> Response:
        """Totals of each workspace since its creation (or the deletion of its usage), and their sum."""
        each = usage.totals_by_workspace(request.user)
        return ok(usage=each, total=usage.summed_totals(each.values()))

    @extend_schema(parameters=[serializers.WindowQuery], responses={200: serializers.ActivityResponse, **INVALID})
    def activity(self, request: ApiRequest) -> Response:
        """What happened, and what was used, within a window; default: the last 24 hours.

        Sums are as fine as the tier of usage that reaches back to `from`: the bucket that holds `from` counts whole.
        """
        begin, end = serializers.activity_window(request)
        entries, truncated = usage.activity_history(request.user, begin, end)
        sums = usage.window_by_workspace(request.user, begin.timestamp(), end.timestamp(), timezone.now().timestamp())
        history: dict[str, list[dict[str, Any]]] = {}
        for entry in entries:
            history.setdefault(entry.workspace_id, []).append(_entry_body(entry))
        window = {"from": iso(begin), "to": iso(end)}
        return ok(**window, history=history, truncated=truncated, window_aggregated=sums)


class UsageViewSet(ViewSet):
    """Usage of one workspace. Billing is independent: neither tracking nor a deletion affects it."""

    @extend_schema(parameters=[serializers.UsageQuery], responses={200: serializers.SeriesResponse, **INVALID})
    def series(self, request: ApiRequest, workspace_id: str) -> Response:
        """The time series: of a tier, or of the finest tier that covers the window.

        `from` takes precedence over `last`; without both, what the given tier covers, else the last hour. There are no
        points for times in which the workspace did not run, was not tracked or was not observed.
        """
        workspace = requested_workspace(request.user, workspace_id)
        window = serializers.window_of(request)
        series = usage.Series(workspace)
        body = _series_body(series, window, window.tier)
        if window.every:
            body["tiers"] = [_series_body(series, window, tier) for tier in TIERS]
        return ok(workspace_id=workspace.pk, **body)

    @extend_schema(responses=serializers.TotalsResponse)
    def totals(self, request: ApiRequest, workspace_id: str) -> Response:
        """Everything it used since its creation, or since its usage was deleted."""
        workspace = requested_workspace(request.user, workspace_id)
        return ok(workspace_id=workspace.pk, usage=usage.totals_of(workspace))

    @extend_schema(responses=serializers.ChartResponse)
    def chart(self, request: ApiRequest, workspace_id: str) -> Response:
        """Credits burned recently: at most 7 points by minute, hour or day. May be a minute old."""
        return ok(**charts.credits_chart(requested_workspace(request.user, workspace_id).pk))

    @extend_schema(request=None, responses=serializers.TrackingResponse)
    def start_tracking(self, request: ApiRequest, workspace_id: str) -> Response:
        """Let totals and series grow from now on, as they do by default. Idempotent."""
        return self._track(request, workspace_id, tracking=True)

    @extend_schema(request=None, responses=serializers.TrackingResponse)
    def stop_tracking(self, request: ApiRequest, workspace_id: str) -> Response:
        """Stop the growth of totals and series. Live statistics and billing continue. Idempotent."""
        return self._track(request, workspace_id, tracking=False)

    @extend_schema(request=None, responses=MessageResponse)
    def destroy(self, request: ApiRequest, workspace_id: str) -> Response:
        """Delete totals and series permanently. Billing records stay."""
        workspace = requested_workspace(request.user, workspace_id)
        services.clear_usage(workspace=workspace, actor=request.user.label)
        return ok(message="The usage data were deleted.")

    def _track(self, request: ApiRequest, workspace_id: str, *, tracking: bool) -> Response:
        workspace = requested_workspace(request.user, workspace_id)
        services.set_tracking(workspace=workspace, actor=request.user.label, tracking=tracking)
        return ok(tracking=tracking)


def _series_body(series: usage.Series, window: serializers.Window, tier: Tier) -> dict[str, Any]:
    begin, end = window.begin_of(tier), window.end
    # Slightly beyond `to`, to include the current bucket.
    points = series.points(tier.number, begin.timestamp(), end.timestamp() + 0.001)
    return {
        "from": iso(begin),
        "to": iso(end),
        "tier": tier.number,
        "resolution_seconds": tier.resolution,
        "points": [_point_body(point) for point in points],
    }


def _point_body(point: Point) -> dict[str, Any]:
    return {
        "timestamp": iso(from_epoch(point.start)),
        "cpu_time_ns": point.cpu_time_ns,
        "cpu_percent": point.cpu_percent,
        "memory_bytes": point.memory_bytes,
        "disk_read_bytes": point.disk_read_bytes,
        "disk_write_bytes": point.disk_write_bytes,
        "net_rx_bytes": point.net_rx_bytes,
        "net_tx_bytes": point.net_tx_bytes,
    }


def _entry_body(entry: Activity) -> dict[str, Any]:
    return {"at": iso(entry.at), "event": entry.event, "actor": entry.actor, "detail": entry.detail}
