"""Staff: certificates, read and renewed. The keys are never shown."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from certificates import services
from certificates.models import AcmeAccount, Certificate
from common.admin import ReadOnlyAdmin
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction


def _renew(act: Act) -> None:
    services.certificate_renew([act.row.name])


@admin.register(Certificate)
class CertificateAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = ("name", "status", "expires_at", "next_attempt_at", "failures", "error")
    list_filter = ("status",)
    search_fields = ("name",)
    exclude = ("key", "order_key", "lease_owner")
    staff_actions = (
        StaffAction(
            name="renew", label="Renew now", call=_renew, icon="autorenew", allowed=lambda row: bool(row.chain),
            will="A new certificate is ordered now. The present one is served until the new one is there.",
        ),
        StaffAction(
            name="retry", label="Order again", call=_renew, icon="replay", allowed=lambda row: not row.chain,
            will="The certificate is ordered again now, without waiting for the next attempt.",
        ),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Certificate]:
        return super().get_queryset(request).defer("key", "order_key")


@admin.register(AcmeAccount)
class AcmeAccountAdmin(ReadOnlyAdmin):
    list_display = ("directory", "url", "paused_until", "created_at")
    exclude = ("key",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[AcmeAccount]:
        return super().get_queryset(request).defer("key")
