"""Queries of the usage routes."""

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
from common.times import EPOCH
from workspaces.usage.tiers import HOUR, TIERS, Tier, tier_reaching

DEFAULT_SECONDS = HOUR
ACTIVITY_DAYS = 1


class Moment(serializers.DateTimeField):
    """ISO 8601; without a zone it is UTC. A `+` that was sent as it is comes as a space. Nothing was before 1970."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(default_timezone=UTC, **kwargs)

    def to_internal_value(self, value: Any) -> datetime:
        if isinstance(value, str):
            value = re.sub(r" (\d\d:?\d\d)$", r"+\1", value)
        return max(EPOCH, super().to_internal_value(value))


class WindowQuery(serializers.Serializer):
    """`from` and `to`, the former before the latter."""

    to = Moment(required=False, help_text="ISO 8601; default now.")

    def get_fields(self) -> dict[str, serializers.Field]:
        begin = Moment(required=False, help_text="ISO 8601.")
        return {"from": begin, **super().get_fields()}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "from" in attrs and attrs["from"] > attrs.get("to", timezone.now()):
            raise serializers.ValidationError({"from": ["It must not be later than `to`."]})
        return attrs


class UsageQuery(WindowQuery):
    tier = serializers.IntegerField(required=False, min_value=0, max_value=5, help_text="Default: by the window.")
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
    """What is asked of a series. `begin` None: as far as each tier reaches."""

    begin: datetime | None
    end: datetime
    tier: Tier
    every: bool

    def begin_of(self, tier: Tier) -> datetime:
        return self.begin or self.end - timedelta(seconds=tier.window)


def window_of(request: Request) -> Window:
    """`from` wins over `last`; neither: what the tier reaches, else the last hour. Raises a validation_error."""
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
    """Default: the last day; what is still to come is none of it. Raises a validation_error."""
    data = _valid(WindowQuery, request)
    now = timezone.now()
    end = data.get("to", now)
    return data.get("from", min(end, now) - timedelta(days=ACTIVITY_DAYS)), end


def _valid(serializer: type[serializers.Serializer], request: Request) -> dict[str, Any]:
    checked = serializer(data=request.query_params)
    checked.is_valid(raise_exception=True)
    return dict(checked.validated_data)
