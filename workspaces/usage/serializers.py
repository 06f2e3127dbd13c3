"""Queries and responses of the usage routes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from common.durations import parse_duration
from common.errors import ValidationError
from common.fields import AnyField
from common.openapi import Success
from common.serializers import ResponseSerializer, Timestamp
from common.times import EPOCH, from_epoch
from workspaces.usage.amounts import Point
from workspaces.usage.tiers import HOUR, TIERS, Tier, tier_reaching

DEFAULT_SECONDS = HOUR
ACTIVITY_DAYS = 1


class Moment(serializers.DateTimeField):
    """Time in ISO 8601; without a zone it is UTC. An unencoded `+` arrives as a space. Earlier times become 1970."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(default_timezone=UTC, **kwargs)

    def to_internal_value(self, value: Any) -> datetime:
        if isinstance(value, str):
            value = re.sub(r" (\d\d:?\d\d)$", r"+\1", value)
        return max(EPOCH, super().to_internal_value(value))


# The field `from` is added in front of `to` by code, as `from` is a keyword of Python.
class FromBeforeTo(serializers.Serializer[Any]):
    """Range from `from` to `to`."""

    def from_field(self) -> AnyField:
        raise NotImplementedError

    def get_fields(self) -> dict[str, AnyField]:
        fields = super().get_fields()
        names = list(fields)
        names.insert(names.index("to"), "from")
        fields["from"] = self.from_field()
        return {name: fields[name] for name in names}


class WindowQuery(FromBeforeTo):
    """Window with `from` before `to`."""

    to = Moment(required=False, help_text="ISO 8601; default now.")

    def from_field(self) -> AnyField:
        return Moment(required=False, help_text="ISO 8601.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "from" in attrs and attrs["from"] > attrs.get("to", timezone.now()):
            raise serializers.ValidationError({"from": ["It must not be later than `to`."]})
        return attrs


class UsageQuery(WindowQuery):
    tier = serializers.IntegerField(required=False, min_value=0, max_value=5, help_text="Default: by the range.")
    last = serializers.CharField(required=False, help_text="For example `1h`, `6h`, `3d`: back from `to`.")
    all = serializers.BooleanField(required=False, default=False, help_text="Every tier, under `tiers`.")

    def validate_last(self, value: str) -> int:
        try:
            seconds = parse_duration(value)
        except ValueError as exc:
            raise serializers.ValidationError(str(exc)) from exc
        if seconds < 1:
            raise serializers.ValidationError("The duration must be at least 1 s.")
        return seconds


@dataclass(frozen=True, slots=True)
class Window:
    """The requested window of a series. `begin` None: the whole range of each tier."""

    begin: datetime | None
    end: datetime
    tier: Tier
    every: bool

    def begin_of(self, tier: Tier) -> datetime:
        return self.begin or self.end - timedelta(seconds=tier.window)


def window_of(request: Request) -> Window:
    """Return the window of a query. `from` takes precedence over `last`; default: the tier's range, else the last hour.
    Raise ValidationError.
    """
    data = _valid(UsageQuery, request)
    now = timezone.now()
    end = min(data.get("to", now), now)
    begin = data.get("from")
    if begin is None and "last" in data:
        begin = end - timedelta(seconds=data["last"])
    if begin is None and "tier" not in data and not data["all"]:
        begin = end - timedelta(seconds=DEFAULT_SECONDS)
    if begin is not None and begin > end:
        raise ValidationError(details={"from": ["It must not be in the future."]})
    age = (now - begin).total_seconds() if begin else DEFAULT_SECONDS
    tier = TIERS[data["tier"]] if "tier" in data else tier_reaching(age)
    return Window(begin, end, tier, data["all"])


def activity_window(request: Request) -> tuple[datetime, datetime]:
    """Return the window of a query; default: the last day. Raise ValidationError."""
    data = _valid(WindowQuery, request)
    now = timezone.now()
    end = data.get("to", now)
    return data.get("from", min(end, now) - timedelta(days=ACTIVITY_DAYS)), end


def _valid(serializer: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    checked = serializer(data=request.query_params)
    checked.is_valid(raise_exception=True)
    return dict(checked.validated_data)


class UsageTotals(ResponseSerializer):
    total_cpu_time_ns = serializers.IntegerField(help_text="Nanoseconds of CPU time.")
    total_disk_read = serializers.IntegerField(help_text="Bytes.")
    total_disk_write = serializers.IntegerField(help_text="Bytes.")
    total_net_rx = serializers.IntegerField(help_text="Bytes that the workspace received.")
    total_net_tx = serializers.IntegerField(help_text="Bytes that it sent.")


class AllUsageResponse(Success):
    usage = serializers.DictField(child=UsageTotals(), help_text="By workspace id.")
    total = UsageTotals()


class TotalsResponse(Success):
    workspace_id = serializers.CharField()
    usage = UsageTotals()


class UsagePointObject(ResponseSerializer):
    timestamp = Timestamp(help_text="Start of the bucket.")
    cpu_time_ns = serializers.IntegerField()
    cpu_percent = serializers.FloatField(help_text="Percent of the workspace's CPUs, over the time measured.")
    memory_bytes = serializers.IntegerField(help_text="Average memory in use, as reported by the guest.")
    disk_read_bytes = serializers.IntegerField()
    disk_write_bytes = serializers.IntegerField()
    net_rx_bytes = serializers.IntegerField()
    net_tx_bytes = serializers.IntegerField()

    def read_timestamp(self, point: Point) -> datetime:
        return from_epoch(point.start)


class TierSeries(FromBeforeTo, ResponseSerializer):
    to = Timestamp()
    tier = serializers.IntegerField()
    resolution_seconds = serializers.IntegerField()
    points = UsagePointObject(many=True)

    def from_field(self) -> AnyField:
        return Timestamp()


class SeriesEnvelope(Success):
    workspace_id = serializers.CharField()


class SeriesResponse(SeriesEnvelope, TierSeries):
    tiers = TierSeries(many=True, required=False, help_text="With `all=true`: every tier.")


class HistoryEntry(ResponseSerializer):
    at = Timestamp(source="created_at")
    event = serializers.CharField(source="action")
    actor = serializers.CharField()
    detail = serializers.CharField()


class WindowTotals(UsageTotals):
    uptime_seconds = serializers.IntegerField(help_text="Seconds for which it was measured running.")


class ActivityResponse(FromBeforeTo, Success):
    to = Timestamp()
    history = serializers.DictField(child=HistoryEntry(many=True), help_text="By workspace id, newest first.")
    truncated = serializers.BooleanField(help_text="Whether there are more than the 1000 entries returned.")
    window_aggregated = serializers.DictField(child=WindowTotals(), help_text="By workspace id.")

    def from_field(self) -> AnyField:
        return Timestamp()


class ChartPoint(ResponseSerializer):
    # The cache holds it as text.
    date = serializers.DateTimeField()
    creditsBurned = serializers.FloatField()


class ChartResponse(Success):
    granularity = serializers.ChoiceField(["minute", "hour", "day"])
    data = ChartPoint(many=True)  # type: ignore[assignment]  # the specification's name
    total = serializers.FloatField()


class TrackingResponse(Success):
    tracking = serializers.BooleanField()
