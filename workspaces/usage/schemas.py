"""Shapes of the usage routes' responses for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers as s

from workspaces.api.schemas import Success


class UsageTotals(s.Serializer):
    total_cpu_time_ns = s.IntegerField(help_text="Nanoseconds of CPU time.")
    total_disk_read = s.IntegerField(help_text="Bytes.")
    total_disk_write = s.IntegerField(help_text="Bytes.")
    total_net_rx = s.IntegerField(help_text="Bytes that the workspace received.")
    total_net_tx = s.IntegerField(help_text="Bytes that it sent.")


class AllUsageResponse(Success):
    usage = s.DictField(child=UsageTotals(), help_text="By workspace id.")
    total = UsageTotals()


class TotalsResponse(Success):
    workspace_id = s.CharField()
    usage = UsageTotals()


class UsagePointObject(s.Serializer):
    timestamp = s.DateTimeField(help_text="Begin of the bucket.")
    cpu_time_ns = s.IntegerField()
    cpu_percent = s.FloatField(help_text="Of the CPUs that it has, while it was seen.")
    memory_bytes = s.IntegerField(help_text="In use on the average, as the guest says.")
    disk_read_bytes = s.IntegerField()
    disk_write_bytes = s.IntegerField()
    net_rx_bytes = s.IntegerField()
    net_tx_bytes = s.IntegerField()


class TierSeries(s.Serializer):
    def get_fields(self) -> dict[str, s.Field]:
        return {"from": s.DateTimeField(), **super().get_fields()}

    to = s.DateTimeField()
    tier = s.IntegerField()
    resolution_seconds = s.IntegerField()
    points = UsagePointObject(many=True)


class SeriesResponse(TierSeries, Success):
    workspace_id = s.CharField()
    tiers = TierSeries(many=True, required=False, help_text="With `all=true`: every tier.")


class HistoryEntry(s.Serializer):
    at = s.DateTimeField()
    event = s.CharField()
    actor = s.CharField()
    detail = s.CharField()


class WindowTotals(UsageTotals):
    uptime_seconds = s.IntegerField(help_text="How long it was seen running.")


class ActivityResponse(Success):
    def get_fields(self) -> dict[str, s.Field]:
        return {**super().get_fields(), "from": s.DateTimeField()}

    to = s.DateTimeField()
    history = s.DictField(child=HistoryEntry(many=True), help_text="By workspace id, newest first.")
    truncated = s.BooleanField(help_text="Whether the history holds the newest 1000 entries of more.")
    window_aggregated = s.DictField(child=WindowTotals(), help_text="By workspace id.")


class ChartPoint(s.Serializer):
    date = s.DateTimeField()
    creditsBurned = s.FloatField()


class ChartResponse(Success):
    granularity = s.ChoiceField(["minute", "hour", "day"])
    data = ChartPoint(many=True)  # type: ignore[assignment]  # the specification's name
    total = s.FloatField()


class TrackingResponse(Success):
    tracking = s.BooleanField()
