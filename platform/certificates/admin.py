"""Staff: certificates, read and renewed. The keys are never shown."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from certificates import services
from certificates.models import AcmeAccount, Certificate
from common.admin import ReadOnlyAdmin, call_for_each


@admin.register(Certificate)
class CertificateAdmin(ReadOnlyAdmin):
    list_display = ("name", "status", "expires_at", "next_attempt_at", "failures", "error")
    list_filter = ("status",)
    search_fields = ("name",)
    exclude = ("key", "order_key", "lease_owner")
    actions = ("renew",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Certificate]:
        return super().get_queryset(request).defer("key", "order_key")

    @admin.action(description="Renew now", permissions=["renew"])
    def renew(self, request: HttpRequest, rows: QuerySet[Certificate]) -> None:
        call_for_each(request, rows, lambda row: services.certificate_renew([row.name]))

    def has_renew_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("certificates.change_certificate"))


@admin.register(AcmeAccount)
class AcmeAccountAdmin(ReadOnlyAdmin):
    list_display = ("directory", "url", "paused_until", "created_at")
    exclude = ("key",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[AcmeAccount]:
        return super().get_queryset(request).defer("key")
