"""Bodies of usage and metrics against the OpenAPI document's."""

from __future__ import annotations

import pytest

from common.openapi import MessageResponse
from tests.callers import Caller
from tests.workspaces.test_shapes import assert_fits
from tests.workspaces.usage.measured import CPU, MeasuredHost
from workspaces.metrics import serializers as metrics
from workspaces.models import Activity
from workspaces.usage import serializers


@pytest.mark.django_db
def test_bodies_match_the_document(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    host.wall += 400
    host.seconds(65, row, cpu_time_ns=CPU)
    Activity.objects.create(account=api.account, workspace_id=row.pk, action="started")
    at = f"/workspace/{row.pk}"
    for method, path, shape in (
        ("GET", "/workspace/usage", serializers.AllUsageResponse()),
        ("GET", "/workspace/activity", serializers.ActivityResponse()),
        ("GET", f"{at}/usage", serializers.SeriesResponse()),
        ("GET", f"{at}/usage?all=true", serializers.SeriesResponse()),
        ("GET", f"{at}/usage/totals", serializers.TotalsResponse()),
        ("GET", f"{at}/usage/credits/chart", serializers.ChartResponse()),
        ("POST", f"{at}/usage/tracking/stop", serializers.TrackingResponse()),
        ("POST", f"{at}/usage/tracking/start", serializers.TrackingResponse()),
        ("GET", f"{at}/stats", metrics.StatsResponse()),
        ("GET", f"{at}/config", metrics.ConfigResponse()),
        ("DELETE", f"{at}/usage", MessageResponse()),
    ):
        answer = api.send(method, path)
        assert answer.status_code == 200, (path, answer.content)
        assert_fits(answer.json(), shape, path)
        if "activity" in path:
            (entry,) = answer.json()["history"][row.pk]
            assert_fits(entry, serializers.HistoryEntry())
            assert_fits(answer.json()["window_aggregated"][row.pk], serializers.WindowTotals())
