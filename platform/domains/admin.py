"""Staff: custom domains and who has which name."""

from __future__ import annotations

from django.contrib import admin

from common.errors import Conflict
from domains import services
from domains.check import check_domain
from domains.models import CustomDomain, DomainName
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.parts.bases import ReadOnlyAdmin
from staff.parts.columns import link_column, time_column
from staff.parts.lists import AgeFilter, IdFilter

# Each check may take ten seconds.
CHECKED_AT_ONCE = 3


def _check(act: Act) -> None:
    """Check the domain's DNS; what is wrong is shown as a refusal is."""
    found = check_domain(act.row.name, act.row.target_id, include_www=act.row.include_www)
    if found.errors:
        raise Conflict(" ".join(found.errors))


def _disconnect(act: Act) -> None:
    services.domain_disconnect(domain=act.row, actor=act.actor)


@admin.register(CustomDomain)
class CustomDomainAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = (
        "name", link_column("account", text="name"), "target_kind", "target_id", "port", "include_www",
        time_column("proven_at"), time_column("created_at"),
    )  # fmt: skip
    list_filter = ("target_kind", ("account", IdFilter), ("target_id", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("account",)
    search_fields = ("name", "account__name")
    search_ids = ("target_id", "account__id")
    keyset = ("-id",)
    staff_actions = (
        StaffAction(
            name="check_records", label="Check the DNS records", call=_check, icon="dns", permission="view",
            most=CHECKED_AT_ONCE, is_atomic=False,
            will="The DNS records are looked up, and compared with those that the name needs. Nothing is changed.",
        ),
        StaffAction(
            name="disconnect", label="Disconnect", call=_disconnect, icon="link_off", harms=True, permission="delete",
            will="The name is not served any more, and its certificate is deleted. Another account may claim it.",
        ),
    )  # fmt: skip


@admin.register(DomainName)
class DomainNameAdmin(ReadOnlyAdmin):
    list_display = ("name", link_column("domain"), "is_stale")
    list_select_related = ("domain",)
    search_fields = ("name",)
    keyset = ("pk",)
