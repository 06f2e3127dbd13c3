"""Admin pages of rates, balances and the ledger.

A new price is a new row. A rate that is valid already cannot be changed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from credits import services
from credits.admin_columns import NearLimitFilter, ServiceFilter, quota_use
from credits.ledger import quota_raise, quota_reset
from credits.models import MAX_QUOTA, Balance, Entry, Hold, LedgerCheck, QuotaDefault, Rate
from namespaces.models import Namespace
from staff.action_admin import DeletedByActionMixin, StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.forms import ActionForm
from staff.parts.bases import ReadOnlyAdmin, ServiceModelAdmin
from staff.parts.columns import (
    BAD,
    BUSY,
    badge,
    credits_column,
    id_column,
    link_column,
    text_column,
    time_column,
)
from staff.parts.forms import ReasonedForm
from staff.parts.lists import AgeFilter, IdFilter

NIGHTLY_WITHIN = timedelta(days=2)


class RateForm(ReasonedForm):
    """Form of a rate. It asks for a reason also when a rate is added, because a new rate is a new price."""

    reason_to_add = True


@admin.register(Rate)
class RateAdmin(DeletedByActionMixin, ServiceModelAdmin):
    form = RateForm
    list_display = ("unit", "credits", time_column("effective_from"))
    list_filter = ("unit",)
    staff_actions = (
        StaffAction(
            name="remove", label="Delete", call=lambda act: services.rate_delete(act.row), icon="delete", harms=True,
            permission="delete", allowed=services.is_future,
            will="The rate is deleted before it becomes valid, and the present price stays. The deletion is refused "
            "if the rate is valid already.",
        ),
    )  # fmt: skip

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"effective_from": timezone.now() + timedelta(hours=1)}

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # The stored row decides: when a form is shown again, `obj` already holds what was typed.
        stored = Rate.objects.filter(pk=obj.pk).first() if obj else None
        return (stored is None or services.is_future(stored)) and super().has_change_permission(request, obj)

    def save_by_service(self, request: HttpRequest, obj: Rate, *, change: bool) -> None:
        services.rate_save(obj)


class RaiseForm(ActionForm):
    """Form of the action that raises a quota. `limit`: the new limit."""

    limit = forms.DecimalField(
        max_digits=19,
        decimal_places=8,
        min_value=0,
        max_value=MAX_QUOTA,
        label="New limit, in credits",
        widget=UnfoldAdminDecimalFieldWidget(),
        help_text="Higher than the present limit. It stays until the owner sets another limit.",
    )


def _reset(act: Act) -> None:
    quota_reset(namespace=_namespace(act), service=act.row.service, actor=act.actor)


def _raise(act: Act) -> None:
    quota_raise(namespace=_namespace(act), service=act.row.service, limit=act.data["limit"])


def _namespace(act: Act) -> Namespace:
    """Return the namespace of a balance. Raise DoesNotExist if it is deleted: the balance outlives it."""
    return Namespace.objects.select_related("account").get(pk=act.row.namespace_id)


@admin.register(Balance)
class BalanceAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = (
        "id", id_column("namespace_id", "namespaces.Namespace"), id_column("account_id", "accounts.Account"), "service",
        quota_use, credits_column("used"), credits_column("held"), credits_column("quota_limit"),
        credits_column("overdraft"),
    )  # fmt: skip
    list_filter = (
        NearLimitFilter, "service", ("namespace_id", IdFilter), ("account_id", IdFilter), "on_overdraft_action",
    )  # fmt: skip
    search_fields = ("=namespace_id",)
    search_ids = ("namespace_id", "account_id")
    search_help_text = "Id of a namespace or account"
    keyset = ("-id",)
    staff_actions = (
        StaffAction(
            name="reset", label="Reset", call=_reset, icon="restart_alt", harms=True,
            will="The used credits become zero, with an entry in the ledger. Thresholds are announced again. A "
            "suspension by this quota ends. Credits that are held stay held.",
        ),
        StaffAction(
            name="raise_quota", label="Raise the quota", call=_raise, icon="trending_up", form=RaiseForm,
            allowed=lambda row: row.quota_limit is not None, owner_reads=True,
            will="The limit of the service becomes higher. The used credits stay. Thresholds are announced again. A "
            "suspension by this quota ends if the new limit has room.",
        ),
    )  # fmt: skip


@admin.register(Entry)
class EntryAdmin(ReadOnlyAdmin):
    list_display = (
        "id", time_column("created_at", "When"), link_column("balance"), "kind", credits_column("amount"),
        credits_column("balance_after"), id_column("workspace_id", "workspaces.Workspace"),
        text_column("description", length=48),
    )  # fmt: skip
    list_filter = (
        "kind", ("balance__service", ServiceFilter), ("balance", IdFilter), ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("balance",)
    search_fields = ("=balance__namespace_id",)
    search_ids = ("balance__namespace_id", "balance__account_id")
    search_help_text = "Id of a namespace or account"
    keyset = ("-id",)


@admin.register(Hold)
class HoldAdmin(ReadOnlyAdmin):
    list_display = ("key", link_column("balance"), credits_column("amount"), time_column("expires_at"))
    list_select_related = ("balance",)
    search_fields = ("=key",)
    search_ids = ("balance__namespace_id",)
    keyset = ("-id",)


@admin.register(QuotaDefault)
class QuotaDefaultAdmin(ReadOnlyAdmin):
    list_display = (
        "id", id_column("account_id", "accounts.Account"), "service", credits_column("quota_limit"),
        credits_column("overdraft"), "auto_apply",
    )  # fmt: skip
    list_filter = ("service", "auto_apply", ("account_id", IdFilter))
    search_fields = ("=account_id",)
    keyset = ("-id",)


@admin.register(LedgerCheck)
class LedgerCheckAdmin(ReadOnlyAdmin):
    list_display = (time_column("started_at", "When"), "result", "is_full", "seconds", "entries", "records", "balances")
    list_filter = (("night", admin.EmptyFieldListFilter),)
    keyset = ("-id",)

    @admin.display(description="Result")
    def result(self, obj: LedgerCheck) -> str:
        if obj.differences is None:
            return badge("failed") if obj.finished_at else badge("running", BUSY)
        return badge(f"{obj.differences} differences", BAD) if obj.differences else badge("agrees")


def ledger_warning(request: HttpRequest) -> list[str] | None:
    """Return the label at the top of every page of the admin (UNFOLD["ENVIRONMENT"]), or None.

    There is a label if the newest finished check found differences, failed, or began more than two days ago. One query.
    """
    if not request.user.is_staff:
        return None
    checks = LedgerCheck.objects.exclude(finished_at=None).order_by("-id")
    newest = checks.values_list("started_at", "differences").first()
    if newest is None:
        return None
    started_at, differences = newest
    if differences is None:
        return ["The check of the ledger failed", "danger"]
    if differences:
        return [f"The ledger has {differences} differences", "danger"]
    late = timezone.now() - started_at > NIGHTLY_WITHIN
    return ["The ledger was not checked for two days", "warning"] if late else None
