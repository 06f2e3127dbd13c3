"""Request and response of `GET /workspace/estimate`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from rest_framework import serializers

from common.openapi import Success
from common.serializers import Amount, ResponseSerializer
from workspaces.crud.config import MAX_DISK_MB
from workspaces.images import shapes
from workspaces.images.choice import DEFAULT_SIZES
from workspaces.quota import Amount as Size


class EstimateQuery(serializers.Serializer[Any]):
    """The ranges and defaults of a create; at least one of them is given."""

    cpu = serializers.DecimalField(
        coerce_to_string=False,
        min_value=Decimal("0.1"),
        max_value=12,
        max_digits=5,
        decimal_places=3,
        required=False,
        help_text="CPUs.",
    )
    ram_mb = serializers.IntegerField(min_value=128, max_value=65536, required=False)
    disk_mb = serializers.IntegerField(min_value=64, max_value=MAX_DISK_MB, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError(
                dict.fromkeys(self.fields, "Give at least one of cpu, ram_mb and disk_mb.")
            )
        return attrs


def estimated_size(query: dict[str, Any]) -> Size:
    """What is left out is as in a create that leaves it out."""
    given = {"cpus": query.get("cpu"), "memory_mb": query.get("ram_mb"), "disk_size_mb": query.get("disk_mb")}
    return Size(**{**DEFAULT_SIZES, **shapes.columns(given)})


class EstimateObject(ResponseSerializer):
    """Of an `Estimate`."""

    credits_per_hour = Amount(help_text="At full use of the CPUs; traffic of disk and network is charged beside it.")
    available = serializers.BooleanField(help_text="Whether one of this size could be created now.")


class EstimateResponse(Success):
    estimate = EstimateObject()
