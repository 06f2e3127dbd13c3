"""Staff: certificates, read and renewed. The keys are never shown."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from certificates import services
from certificates.models import AcmeAccount, Certificate
from common.errors import Conflict
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.parts.bases import ReadOnlyAdmin
from staff.parts.columns import state_column, text_column, time_column
from staff.parts.lists import AgeFilter, ConditionFilter, IdFilter
from staff.subjects import Subject


def _renew(act: Act) -> None:
    """Renew a certificate, unless it is being removed: it would be wanted again."""
    if not act.row.wanted:
        raise Conflict("No domain needs this certificate any more: it is being removed.")
    services.certificate_renew([act.row.name])


class BrokenFilter(ConditionFilter):
    title = "trouble"
    parameter_name = "broken"
    conditions = {
        "pending": ("Pending", lambda: Q(wanted=True, status="pending")),
        "1": ("Failed or expired", lambda: Q(wanted=True, status__in=("failed", "expired"))),
        "ending": (
            "Active, and ends within a week",
            lambda: Q(wanted=True, status="active", expires_at__lt=timezone.now() + timedelta(days=7)),
        ),
    }


@admin.register(Certificate)
class CertificateAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = (
        "name", state_column("status", reason="error"), time_column("expires_at"), time_column("next_attempt_at"),
        "failures", text_column("error", length=60), time_column("created_at"),
    )  # fmt: skip
    list_filter = (BrokenFilter, "status", ("owner", IdFilter), ("created_at", AgeFilter))
    search_fields = ("name",)
    keyset = ("-id",)
    exclude = ("key", "order_key", "challenge_token", "claim")
    staff_actions = (
        StaffAction(
            name="renew", label="Renew now", call=_renew, icon="autorenew", owner_reads=True,
            allowed=lambda row: row.wanted and bool(row.chain),
            will="A new certificate is ordered now. The present one is served until the new one is there.",
        ),
        StaffAction(
            name="retry", label="Order again", call=_renew, icon="replay", owner_reads=True,
            allowed=lambda row: row.wanted and not row.chain,
            will="The certificate is ordered again now, without waiting for the next attempt.",
        ),
    )  # fmt: skip

    def staff_subject(self, row: Certificate) -> Subject:
        return Subject(account_id=row.owner)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Certificate]:
        return super().get_queryset(request).defer("key", "order_key")


@admin.register(AcmeAccount)
class AcmeAccountAdmin(ReadOnlyAdmin):
    list_display = ("directory", "url", time_column("paused_until"), time_column("created_at"))
    exclude = ("key",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[AcmeAccount]:
        found: QuerySet[AcmeAccount] = super().get_queryset(request).defer("key")
        return found
