"""Staff: custom domains and who has which name."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, ServiceModelAdmin, call_for_each, staff_label
from common.admin_columns import link_column, time_column
from common.admin_lists import AgeFilter, IdFilter
from domains import services
from domains.check import domain_check
from domains.models import CustomDomain, DomainName

# Each check may take ten seconds.
CHECKED_AT_ONCE = 3


@admin.register(CustomDomain)
class CustomDomainAdmin(ServiceModelAdmin):
    list_display = (
        "name", link_column("account", text="name"), "target_kind", "target_id", "port", "include_www",
        time_column("proven_at"), time_column("created_at"),
    )  # fmt: skip
    list_filter = ("target_kind", ("account", IdFilter), ("target_id", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("account",)
    search_fields = ("name", "account__name")
    search_ids = ("target_id", "account__id")
    readonly_fields = tuple(field.name for field in CustomDomain._meta.concrete_fields)
    actions = ("check_records",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def save_by_service(self, request: HttpRequest, obj: CustomDomain, *, change: bool) -> None:
        """Nothing of a domain can be edited; deleting it disconnects it."""

    def delete_by_service(self, request: HttpRequest, obj: CustomDomain) -> None:
        services.domain_disconnect(domain=obj, actor=staff_label(request))

    @admin.action(description="Check the DNS records (of three at most)")
    def check_records(self, request: HttpRequest, rows: QuerySet[CustomDomain]) -> None:
        call_for_each(request, rows[:CHECKED_AT_ONCE], lambda row: _show_check(request, row))


def _show_check(request: HttpRequest, row: CustomDomain) -> None:
    found = domain_check(row.name, row.target_id, include_www=row.include_www)
    messages.info(request, f"{row.name}: {' '.join(found.errors) or 'the records are as they must be.'}")


@admin.register(DomainName)
class DomainNameAdmin(ReadOnlyAdmin):
    list_display = ("name", link_column("domain"), "is_stale")
    list_select_related = ("domain",)
    search_fields = ("name",)
