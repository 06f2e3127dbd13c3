"""This app's part of `/metrics` (config/app_list.py)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from common.gauges import backlog
from webhooks.models import Delivery, DeliveryStatus


def gauges() -> Iterator[Metric]:
    """Yield the gauges, by one query over the index of pending deliveries. The age is that of the most overdue
    attempt.
    """
    pending = Delivery.objects.filter(status=DeliveryStatus.PENDING, attempts__gte=0)
    return backlog(pending, "next_attempt_at", "mvm_webhook_deliveries_pending", "Events to be delivered")
