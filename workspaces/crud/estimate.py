"""`GET /workspace/estimate`: the price of a workspace of a size, and whether it could be created now."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from accounts.models import Account
from common.errors import DomainError
from common.openapi import Success
from common.serializers import Amount, ResponseSerializer
from common.times import EPOCH
from credits.prices import CPU_NS_PER_HOUR, PriceTable
from workspaces import placement, quota
from workspaces.crud.config import MAX_DISK_MB
from workspaces.images import shapes
from workspaces.images.choice import DEFAULT_SIZES
from workspaces.quota import Amount as Size

MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a workspace. `credits_per_hour`: at full use of the CPUs, by the present rates."""

    credits_per_hour: Decimal
    available: bool


def workspace_estimate(account: Account, wanted: quota.Amount) -> Estimate:
    """Return an estimate. Nothing is reserved: a create may still be refused if another one is faster. Traffic of disk
    and network is not included, as it is charged as it occurs. Five queries, whatever the account has.
    """
    now = int((timezone.now() - EPOCH).total_seconds() * 1_000_000)
    cpu_time = wanted.cpu_millis * CPU_NS_PER_HOUR // 1000
    price = PriceTable.load().price(now, cpu_time, wanted.memory_mb * MS_PER_HOUR, 0, 0)
    return Estimate(price, _within_limits(account, wanted) and placement.has_room(wanted))


def _within_limits(account: Account, wanted: quota.Amount) -> bool:
    try:
        quota.require_create_allowed(account.plan, quota.account_usage(account), wanted)
    except DomainError:
        return False
    return True


class EstimateQuery(serializers.Serializer[Any]):
    """Query of an estimate, with the ranges and defaults of a create; at least one size is given."""

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
    """Return the size of a query. Fields that are left out have the defaults of a create."""
    given = {"cpus": query.get("cpu"), "memory_mb": query.get("ram_mb"), "disk_size_mb": query.get("disk_mb")}
    return Size(**{**DEFAULT_SIZES, **shapes.columns(given)})


class EstimateObject(ResponseSerializer):
    """Price of a workspace, and whether it could be created now."""

    credits_per_hour = Amount(help_text="At full use of the CPUs; traffic of disk and network is charged beside it.")
    available = serializers.BooleanField(help_text="Whether one of this size could be created now.")


class EstimateResponse(Success):
    estimate = EstimateObject()
