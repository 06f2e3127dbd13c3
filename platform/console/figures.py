"""Figures of the dashboard. Each function is one query; tables that grow are read through an index or as a summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import CharField, Count, Min, Q, QuerySet, Value
from django.utils import timezone

from cdn.models import File
from certificates.models import Certificate
from certificates.models import Status as CertificateStatus
from common.cached_value import CachedValue
from console.models import HourlySummary
from console.summary import CACHED_SECONDS
from notifications.models import Send
from pages.models import PageDeploy
from pages.states import LIVE
from vmbackend.models import Host
from webhooks.models import Delivery, Subscription
from workspaces.models import Operation

TREND_DAYS = 7
SHOWN = 8
DAY = timedelta(days=1)
# A certificate is renewed well before; one that ends so soon was not.
ENDS_SOON = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of rows of something, and the earliest time among them."""

    count: int
    since: datetime | None


def live_operations() -> list[Operation]:
    """Return the oldest ones."""
    found = Operation.objects.filter(finished_at=None).select_related("workspace").order_by("created_at")
    return list(_without_secrets(found)[:SHOWN])


def noticeable_operations() -> list[Operation]:
    """Return the newest that failed or were slow in the last day."""
    found = Operation.objects.filter(attention_at__gte=timezone.now() - DAY).select_related("workspace")
    return list(_without_secrets(found).order_by("-attention_at")[:SHOWN])


def _without_secrets(found: QuerySet[Operation]) -> QuerySet[Operation]:
    """Leave out the encrypted columns of workspaces: they cost more than everything else and are not shown."""
    return found.defer("params").only(
        "id", "kind", "state", "step", "attempt", "created_at", "finished_at", "deadline_at", "error_code",
        "error_message", "actor", "workspace__name",
    )  # fmt: skip


def _hosts() -> list[Host]:
    return list(Host.objects.order_by("name"))


HOSTS = CachedValue(_hosts, CACHED_SECONDS)


def summaries() -> list[HourlySummary]:
    """Return the last days, oldest first."""
    since = timezone.now() - timedelta(days=TREND_DAYS)
    return list(HourlySummary.objects.filter(hour__gte=since).order_by("hour"))


def backlogs(allowed: Any) -> dict[str, Backlog]:
    """Return what waits and what is broken, by name, in one query. `allowed(permission)` says which may be shown."""
    parts = [part for permission, rows in _backlogs() if allowed(permission) for part in rows]
    if not parts:
        return {}
    found = parts[0].union(*parts[1:], all=True)
    return {row["part"]: Backlog(row["rows"], row["since"]) for row in found}


def _backlogs() -> Iterator[tuple[str, list[Any]]]:
    now = timezone.now()
    operations = Operation.objects.all()
    yield (
        "workspaces.view_operation",
        [
            _part("operations_live", operations.filter(finished_at=None), "created_at"),
            _part("operations_failed", operations.filter(attention_at__gte=now - DAY, state="failed"), "attention_at"),
            _part(
                "operations_slow", operations.filter(~Q(state="failed"), attention_at__gte=now - DAY), "attention_at"
            ),
        ],
    )
    due = Delivery.objects.filter(status="pending", attempts__gte=0)
    hooks = Subscription.objects.filter(deleted_at=None)
    yield "webhooks.view_delivery", [_part("deliveries_due", due, "next_attempt_at")]
    yield (
        "webhooks.view_subscription",
        [
            _part("webhooks_failing", hooks.filter(active=True, failing_since__isnull=False), "failing_since"),
            _part("webhooks_disabled", hooks.filter(disabled_reason__isnull=False), "updated_at"),
        ],
    )
    wanted = Certificate.objects.filter(wanted=True)
    yield (
        "certificates.view_certificate",
        [
            _part("certificates_pending", wanted.filter(status=CertificateStatus.PENDING), "created_at"),
            _part("certificates_failed", wanted.filter(status__in=("failed", "expired")), "created_at"),
            _part("certificates_ending", wanted.filter(status="active", expires_at__lt=now + ENDS_SOON), "expires_at"),
        ],
    )
    yield (
        "notifications.view_send",
        [
            _part("sends", Send.objects.filter(state__in=("queued", "running")), "created_at"),
            _part("sends_failed", Send.objects.filter(failed__gt=0), "created_at"),
        ],
    )
    yield (
        "cdn.view_file",
        [
            _part("files_processing", File.objects.filter(status="processing"), "created_at"),
            _part("files_rejected", File.objects.filter(status="rejected"), "rejected_at"),
        ],
    )
    yield (
        "pages.view_pagedeploy",
        [
            _part("deploys_live", PageDeploy.objects.filter(state__in=LIVE), "created_at"),
        ],
    )


def _part(name: str, rows: QuerySet[Any], since: str) -> QuerySet[Any, dict[str, Any]]:
    named = rows.order_by().annotate(part=Value(name, CharField())).values("part")
    # Not of a column: an index without it suffices.
    found: QuerySet[Any, dict[str, Any]] = named.annotate(rows=Count("*"), since=Min(since))
    return found
