"""Bodies of the credit routes."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from rest_framework import serializers as s

from common.fields import BoundedList, StrictBoolean, StrictChar, StrictDecimal, StrictFloat, StrictRegex
from common.openapi import Success
from common.serializers import Amount, ResponseSerializer, Timestamp
from credits.defaults import THRESHOLDS
from credits.models import MAX_QUOTA, SERVICE_LENGTH, Balance, Entry, OverdraftAction, QuotaDefault, Service
from namespaces.models import Status

SERVICE = re.compile(r"^[a-z0-9_-]{1,64}\Z")
MAX_DAYS = 90


class AmountField(StrictDecimal):
    """Field of up to 10,000,000 credits, to the eighth place."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_digits=16, decimal_places=8, min_value=Decimal(0), max_value=MAX_QUOTA, **kwargs)


class ServiceName(StrictRegex):
    """Field for any name of a service. The platform charges the services of `Service`."""

    def __init__(self, **kwargs: Any) -> None:
        text = (
            f"The platform charges {', '.join(f'`{each}`' for each in Service.values)}; other names are the caller's."
        )
        super().__init__(SERVICE, max_length=SERVICE_LENGTH, trim_whitespace=False, help_text=text, **kwargs)


class QuotaNameRequest(s.Serializer[Any]):
    namespace = StrictChar(max_length=128, help_text="The namespace's slug.")
    service = ServiceName()


class QuotaFields(s.Serializer[Any]):
    """Fields that a quota and its default have in common."""

    quotaLimit = AmountField()
    overdraft = AmountField(default=Decimal(0))
    onOverdraftAction = s.ChoiceField(choices=OverdraftAction.choices, default=OverdraftAction.BLOCK)
    notificationThresholds = BoundedList(
        child=StrictFloat(min_value=1, max_value=1000),
        allow_null=True,
        default=None,
        max_length=20,
        help_text="Percent of the limit. Null means 80 and 95; an empty list means no notifications.",
    )

    def validate_notificationThresholds(self, value: list[float] | None) -> list[float]:
        return list(THRESHOLDS) if value is None else value


class SetQuotaRequest(QuotaNameRequest, QuotaFields):
    pass


class QuotaRecord(ResponseSerializer):
    namespace = s.CharField()
    service = s.CharField()
    quota_limit = Amount(allow_null=True, help_text="Null if there is no limit: nothing is refused.")
    quota_used = Amount()
    overdraft = Amount()
    on_overdraft_action = s.ChoiceField(choices=OverdraftAction.choices)
    notification_thresholds = s.ListField(child=s.FloatField())
    last_threshold_fired = s.FloatField(allow_null=True)


def quota_record(balance: Balance, slug: str) -> dict[str, Any]:
    """Return what `QuotaRecord` shows of a balance."""
    return {
        "namespace": slug,
        "service": balance.service,
        "quota_limit": balance.quota_limit,
        "quota_used": balance.used,
        "overdraft": balance.overdraft,
        "on_overdraft_action": balance.on_overdraft_action,
        "notification_thresholds": balance.notification_thresholds,
        "last_threshold_fired": balance.last_threshold_fired,
    }


class NamespaceQuotaResponse(Success):
    data = QuotaRecord()  # type: ignore[assignment]  # the specification's name


class DefaultNameRequest(s.Serializer[Any]):
    level = s.ChoiceField(choices=["namespace"])
    service = ServiceName()


class LevelQuery(s.Serializer[Any]):
    level = s.ChoiceField(choices=["namespace"], default="namespace")


class SetDefaultRequest(LevelQuery, QuotaFields):
    service = ServiceName()
    autoApply = StrictBoolean(default=True)


class QuotaDefaultObject(ResponseSerializer):
    level = s.ChoiceField(choices=["namespace"])
    service = s.CharField()
    quota_limit = Amount()
    overdraft = Amount()
    on_overdraft_action = s.ChoiceField(choices=OverdraftAction.choices)
    notification_thresholds = s.ListField(child=s.FloatField())
    auto_apply = s.BooleanField()

    def read_level(self, default: QuotaDefault) -> str:
        return "namespace"


class QuotaDefaultResponse(Success):
    data = QuotaDefaultObject()  # type: ignore[assignment]  # the specification's name


class QuotaDefaultListResponse(Success):
    data = QuotaDefaultObject(many=True)  # type: ignore[assignment]  # the specification's name


class ListQuotasQuery(s.Serializer[Any]):
    status = s.ChoiceField(choices=Status.choices, required=False, help_text="Status of the namespaces.")


class NamespaceQuotas(ResponseSerializer):
    namespace = s.CharField()
    status = s.ChoiceField(choices=Status.choices)
    quotas = QuotaRecord(many=True)


class DetailQuery(s.Serializer[Any]):
    days = s.IntegerField(min_value=1, max_value=MAX_DAYS, default=30)


class CreditTotals(ResponseSerializer):
    total_requests = s.IntegerField()
    total_credits = Amount()


class ServiceCredits(ResponseSerializer):
    service = s.CharField()
    credits = Amount()
    requests = s.IntegerField()
    percent = s.FloatField(help_text="Percent of all credits in the range.")


class DayCredits(ResponseSerializer):
    date = s.CharField()
    credits = Amount()


class CreditTransaction(ResponseSerializer):
    id = s.IntegerField()
    at = Timestamp(source="created_at")
    service = s.CharField()
    amount = Amount()
    balance_after = Amount()
    type = s.CharField(source="kind")
    description = s.CharField()
    workspace_id = s.CharField(allow_null=True)

    def read_service(self, entry: Entry) -> str:
        return entry.balance.service

    def read_workspace_id(self, entry: Entry) -> str | None:
        return entry.workspace_id or None


class NamespaceCredits(NamespaceQuotas):
    usage = CreditTotals()
    services = ServiceCredits(many=True)
    timeline = DayCredits(many=True)
    transactions = CreditTransaction(many=True)


class NamespaceCreditsResponse(Success):
    data = NamespaceCredits()  # type: ignore[assignment]  # the specification's name


class UsageQuery(DetailQuery):
    service = ServiceName(required=False)
    days = s.IntegerField(min_value=1, max_value=366, default=30)


class NamespaceUsageItem(ResponseSerializer):
    date = s.CharField()
    service = s.CharField()
    total_requests = s.IntegerField()
    total_credits = Amount()


class NamespaceUsageSummary(ResponseSerializer):
    service = s.CharField()
    total_requests = s.IntegerField()
    total_credits = Amount()


class NamespaceUsage(ResponseSerializer):
    usage = NamespaceUsageItem(many=True)
    summary = NamespaceUsageSummary(many=True)
    quotas = QuotaRecord(many=True)


class NamespaceUsageResponse(Success):
    data = NamespaceUsage()  # type: ignore[assignment]  # the specification's name
