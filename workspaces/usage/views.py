"""`/workspace/usage`, `/workspace/activity` and `/workspace/:id/usage` (specification, Usage and activity)."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from accounts.authentication import ApiRequest
from common.openapi import MessageResponse, refused
from common.responses import respond
from workspaces.models import Activity
from workspaces.requested import requested_workspace
from workspaces.usage import charts, serializers, services
from workspaces.usage import selectors as usage
from workspaces.usage.tiers import TIERS, Tier

INVALID = refused({400: "`validation_error`"})


class AllUsageViewSet(ViewSet):
    """Usage of all workspaces in the scope of the credential."""

    @extend_schema(operation_id="workspace_usage_all", responses=serializers.AllUsageResponse)
    def totals(self, request: ApiRequest) -> Response:
        """Return totals of each workspace since its creation (or the deletion of its usage), and their sum."""
        each = services.totals_by_workspace(request.user)
        return respond(serializers.AllUsageResponse, usage=each, total=usage.summed_totals(each.values()))

    @extend_schema(parameters=[serializers.WindowQuery], responses={200: serializers.ActivityResponse, **INVALID})
    def activity(self, request: ApiRequest) -> Response:
        """Return activity and usage within a window; default: the last 24 hours.

        Sums use the finest tier that reaches back to `from`: the bucket that contains `from` counts as a whole.
        """
        begin, end = serializers.activity_window(request)
        entries, truncated = usage.activity_history(request.user, begin, end)
        sums = usage.window_by_workspace(request.user, begin.timestamp(), end.timestamp(), timezone.now().timestamp())
        history: dict[str, list[Activity]] = {}
        for entry in entries:
            history.setdefault(entry.workspace_id, []).append(entry)
        window = {"from": begin, "to": end}
        body = serializers.ActivityResponse
        return respond(body, **window, history=history, truncated=truncated, window_aggregated=sums)


class UsageViewSet(ViewSet):
    """Usage of one workspace. Billing is metered separately: neither tracking nor a deletion changes it."""

    @extend_schema(parameters=[serializers.UsageQuery], responses={200: serializers.SeriesResponse, **INVALID})
    def series(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return the time series of a tier; by default the finest that reaches back to the start of the window.

        `from` takes precedence over `last`; default: the range of the given tier, else the last hour. There are no
        points for times in which the workspace was not running, not tracked or not sampled.
        """
        workspace = requested_workspace(request.user, workspace_id)
        window = serializers.window_of(request)
        series = usage.Series(workspace)
        requested = _tier_series(series, window, window.tier)
        every = [_tier_series(series, window, tier) for tier in TIERS] if window.every else None
        return respond(serializers.SeriesResponse, workspace_id=workspace.pk, **requested, tiers=every)

    @extend_schema(responses=serializers.TotalsResponse)
    def totals(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return totals since its creation, or since its usage was deleted."""
        workspace = requested_workspace(request.user, workspace_id)
        return respond(serializers.TotalsResponse, workspace_id=workspace.pk, usage=services.totals_of(workspace))

    @extend_schema(responses=serializers.ChartResponse)
    def chart(self, request: ApiRequest, workspace_id: str) -> Response:
        """Return credits used recently: at most 7 points by minute, hour or day. Cached for up to a minute."""
        chart = charts.credits_chart(requested_workspace(request.user, workspace_id).pk)
        return respond(serializers.ChartResponse, **chart)

    @extend_schema(request=None, responses=serializers.TrackingResponse)
    def start_tracking(self, request: ApiRequest, workspace_id: str) -> Response:
        """Start tracking: totals and series are updated from now on. On by default. Idempotent."""
        return self._track(request, workspace_id, tracking=True)

    @extend_schema(request=None, responses=serializers.TrackingResponse)
    def stop_tracking(self, request: ApiRequest, workspace_id: str) -> Response:
        """Stop tracking: totals and series stay unchanged. Live statistics and billing continue. Idempotent."""
        return self._track(request, workspace_id, tracking=False)

    @extend_schema(request=None, responses={200: MessageResponse})
    def destroy(self, request: ApiRequest, workspace_id: str) -> Response:
        """Delete totals and series permanently. Billing records stay."""
        workspace = requested_workspace(request.user, workspace_id)
        services.clear_usage(workspace=workspace, actor=request.user.label)
        return respond(MessageResponse, message="The usage data was deleted.")

    def _track(self, request: ApiRequest, workspace_id: str, *, tracking: bool) -> Response:
        workspace = requested_workspace(request.user, workspace_id)
        services.set_tracking(workspace=workspace, actor=request.user.label, tracking=tracking)
        return respond(serializers.TrackingResponse, tracking=tracking)


def _tier_series(series: usage.Series, window: serializers.Window, tier: Tier) -> dict[str, Any]:
    begin, end = window.begin_of(tier), window.end
    # Slightly beyond `to`, for the current bucket.
    points = series.points(tier.number, begin.timestamp(), end.timestamp() + 0.001)
    return {
        "from": begin,
        "to": end,
        "tier": tier.number,
        "resolution_seconds": tier.resolution,
        "points": points,
    }
