"""Request and response of `GET /workspace/estimate`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from rest_framework import serializers

from common.openapi import Success
from common.serializers import Amount, ResponseSerializer
from workspaces.crud.config import MAX_DISK_MB
from workspaces.quota import Amount as Size


class EstimateQuery(serializers.Serializer):
    """The ranges of a create."""

    cpu = serializers.DecimalField(
        coerce_to_string=False,
        min_value=Decimal("0.1"),
        max_value=12,
        max_digits=5,
        decimal_places=3,
        help_text="CPUs.",
    )
    ram_mb = serializers.IntegerField(min_value=128, max_value=65536)
    disk_mb = serializers.IntegerField(min_value=64, max_value=MAX_DISK_MB)


def estimated_size(query: dict[str, Any]) -> Size:
    return Size(int(query["cpu"] * 1000), query["ram_mb"], query["disk_mb"])


class EstimateObject(ResponseSerializer):
    """Of an `Estimate`."""

    credits_per_hour = Amount(help_text="At full use of the CPUs; traffic of disk and network is charged beside it.")
    available = serializers.BooleanField(help_text="Whether one of this size could be created now.")


class EstimateResponse(Success):
    estimate = EstimateObject()
