"""Code that the apps' parts of `/metrics` share."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, QuerySet
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric


def seconds_since(moment: datetime | None) -> float:
    """Return the seconds since a time; 0 for None, and for a time to come: a clock may have been set back."""
    return 0.0 if moment is None else max(0.0, (timezone.now() - moment).total_seconds())


def backlog(rows: QuerySet[Any], since: str, name: str, what: str) -> Iterator[Metric]:
    """Yield how many rows wait (`name`), and for how long the first has by its column `since`
    (`<name>_oldest_seconds`). One query.
    """
    found = rows.order_by().aggregate(count=Count("*"), first=Min(since))
    yield GaugeMetricFamily(name, f"{what}.", value=found["count"])
    yield GaugeMetricFamily(f"{name}_oldest_seconds", f"{what}: the age of the oldest.", seconds_since(found["first"]))
