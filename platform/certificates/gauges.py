"""This app's part of `/metrics` (config/app_list.py)."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count, Min
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from certificates.models import Certificate


def gauges() -> Iterator[Metric]:
    """Yield the gauges, by one query over the certificates that are wanted. The expiry is negative once it has
    passed.
    """
    counts = GaugeMetricFamily("mvm_certificates", "Certificates of custom domains, by status.", labels=["status"])
    soonest = None
    wanted = Certificate.objects.filter(wanted=True).order_by().values("status")
    for row in wanted.annotate(count=Count("pk"), first=Min("expires_at")):
        counts.add_metric([row["status"]], row["count"])
        if row["first"] is not None:
            soonest = min(row["first"], soonest or row["first"])
    yield counts
    if soonest is not None:
        left = (soonest - timezone.now()).total_seconds()
        yield GaugeMetricFamily("mvm_certificate_expiry_seconds", "Until the next one expires.", value=left)
