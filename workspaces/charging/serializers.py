"""Query and response of `/namespaces/:id/usage-units`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from rest_framework import serializers as s

from common.fields import AnyField
from common.openapi import Success
from common.serializers import Amount, ResponseSerializer, Timestamp
from common.times import from_epoch
from workspaces.charging.selectors import UnitSums
from workspaces.usage.serializers import FromBeforeTo, WindowQuery

DEFAULT_DAYS = 30
MAX_DAYS = 366
MINUTES = 60


class UnitsQuery(WindowQuery):
    """A range of at most a year; default: the last 30 days."""

    groupBy = s.ChoiceField(choices=["hour", "day"], default="day", help_text="Hours and days of UTC.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        attrs = super().validate(attrs)
        attrs.setdefault("to", timezone.now())
        attrs.setdefault("from", attrs["to"] - timedelta(days=DEFAULT_DAYS))
        if attrs["to"] - attrs["from"] > timedelta(days=MAX_DAYS):
            raise s.ValidationError({"from": [f"At most {MAX_DAYS} days before `to`."]})
        return attrs


class UsageUnits(ResponseSerializer):
    cpu_time_minutes = Amount()
    memory_gb_minutes = Amount(help_text="A GB of memory is 1024 MiB.")
    disk_io_gb = Amount(help_text="A GB is 1e9 bytes.")
    network_gb = Amount(help_text="A GB is 1e9 bytes.")
    vcpu_hours = Amount()
    gb_hours = Amount()
    credits = Amount(help_text="As charged, by the prices at the time of each tick.")
    records = s.IntegerField()

    def to_representation(self, instance: UnitSums) -> dict[str, Any]:
        units = instance.units
        return super().to_representation(
            {
                "cpu_time_minutes": units.cpu_time_minutes,
                "memory_gb_minutes": units.memory_gb_minutes,
                "disk_io_gb": units.disk_io_gb,
                "network_gb": units.network_gb,
                "vcpu_hours": units.cpu_time_minutes / MINUTES,
                "gb_hours": units.memory_gb_minutes / MINUTES,
                "credits": instance.credits,
                "records": instance.records,
            }
        )


class UsageUnitsBucket(UsageUnits):
    timestamp = Timestamp(help_text="The start of the hour or day.")

    def to_representation(self, instance: UnitSums) -> dict[str, Any]:
        found = UsageUnits().to_representation(instance)
        return {"timestamp": Timestamp().to_representation(from_epoch(instance.start)), **found}


class UnitsRange(FromBeforeTo, ResponseSerializer):
    to = Timestamp()

    def from_field(self) -> AnyField:
        return Timestamp()


class UsageUnitsOfRange(ResponseSerializer):
    namespace = s.CharField()
    range = UnitsRange()
    group_by = s.ChoiceField(choices=["hour", "day"])
    buckets = UsageUnitsBucket(many=True, help_text="The buckets in which something was charged.")
    totals = UsageUnits()


class UsageUnitsResponse(Success, UsageUnitsOfRange):
    """Response with the units at the top level and once more as `data`."""

    data = UsageUnitsOfRange()  # type: ignore[assignment]  # the contract's name


def in_microseconds(moment: datetime, epoch: datetime) -> int:
    return (moment - epoch) // timedelta(microseconds=1)
