"""Admin pages of files, limits, counters and audit entries of the CDN."""

from __future__ import annotations

from itertools import chain
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest

from accounts.audit_admin import AccountEventAdmin
from cdn.fields import CdnPolicyRequest
from cdn.models import File, FileEvent, NamespaceQuota, Permit, PlanLimits, Pool, Template
from cdn.policy import POLICY_FIELDS
from cdn.services import files, limits
from cdn.states import FileStatus
from common.responses import field_messages
from staff.action_admin import DeletedByActionMixin, StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.parts.bases import ReadOnlyAdmin, ServiceModelAdmin
from staff.parts.columns import bytes_column, link_column, state_column, text_column, time_column
from staff.parts.forms import ReasonedForm
from staff.parts.lists import AgeFilter, IdFilter


def _trash(act: Act) -> None:
    files.file_trash(file=act.row, actor=act.actor, origin=act.origin)


def _restore(act: Act) -> None:
    files.file_restore(file=act.row, actor=act.actor, origin=act.origin)


def _purge(act: Act) -> None:
    _trash(act)
    files.trash_purge(account=act.row.account, within=Q(pk=act.row.pk), actor=act.actor, origin=act.origin)


LIMITS_DELETED = (
    "The limits of the plan are deleted: its accounts get the default limits from then on. Their files stay. It "
    "cannot be undone; limits may be added again."
)


class PlanLimitsForm(ReasonedForm):
    """Form of a plan's limits. The policy is one that the API accepts as well. An empty policy has no fields."""

    def clean_policy(self) -> dict[str, Any]:
        given = self.cleaned_data["policy"]
        checked = CdnPolicyRequest(data={} if given is None else given)
        if not checked.is_valid():
            raise forms.ValidationError("; ".join(chain.from_iterable(field_messages(checked.errors).values())))
        if unknown := [repr(name) for name in checked.initial_data if name not in POLICY_FIELDS]:
            raise forms.ValidationError(f"A policy has no field {', '.join(unknown)}.")
        return limits.merged_policy(None, checked.initial_data) or {}


@admin.register(PlanLimits)
class PlanLimitsAdmin(DeletedByActionMixin, ServiceModelAdmin):
    """Ceilings of plans. `policy`: see docs/operations.md, CDN."""

    form = PlanLimitsForm
    list_display = ("plan", bytes_column("max_bytes"), bytes_column("monthly_bytes"), "policy")
    list_select_related = ("plan",)
    staff_actions = (
        StaffAction(
            name="remove", label="Delete", call=lambda act: limits.plan_limits_delete(act.row), icon="delete",
            harms=True, permission="delete", will=LIMITS_DELETED,
        ),
    )  # fmt: skip

    def get_readonly_fields(self, request: HttpRequest, obj: PlanLimits | None = None) -> tuple[str, ...]:
        return ("plan",) if obj else ()

    def save_by_service(self, request: HttpRequest, obj: PlanLimits, *, change: bool) -> None:
        limits.plan_limits_save(obj)


@admin.register(File)
class FileAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = (
        "id", text_column("filename", length=40), link_column("account", text="name"),
        link_column("namespace", text="slug"), state_column("status"), "kind", bytes_column("size"),
        bytes_column("footprint"), time_column("created_at"),
    )  # fmt: skip
    list_filter = (
        "status", "kind", ("account", IdFilter), ("namespace", IdFilter), ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("account", "namespace")
    # Metadata belongs to the owner, and may hold things that staff need not know.
    exclude = ("metadata", "claim")
    search_fields = ("^filename",)
    search_newest_first = True  # cameras number their pictures
    search_ids = ("id", "account__id", "namespace__id")
    keyset = ("-id",)
    staff_actions = (
        StaffAction(
            name="trash", label="Move to the trash", call=_trash, icon="delete", harms=True,
            allowed=lambda row: row.status not in (FileStatus.TRASHED, FileStatus.REJECTED),
            will="The file is not delivered from the next request on. It can be restored.",
        ),
        StaffAction(
            name="restore", label="Restore from the trash", call=_restore, icon="restore_from_trash",
            allowed=lambda row: row.status == FileStatus.TRASHED, owner_reads=True,
            will="The file is delivered again.",
        ),
        StaffAction(
            name="purge", label="Delete with its bytes", call=_purge, icon="delete_forever", harms=True,
            permission="delete", is_atomic=False, allowed=lambda row: row.status != FileStatus.REJECTED,
            will="The file and its bytes are deleted, by way of the trash. It cannot be undone.",
        ),
    )  # fmt: skip


@admin.register(Template)
class TemplateAdmin(ReadOnlyAdmin):
    list_display = ("account", bytes_column("cdn_max_bytes"), bytes_column("cdn_monthly_bytes"), "policy")
    list_select_related = ("account",)
    search_fields = ("account__name",)
    search_ids = ("account__id",)
    keyset = ("-pk",)


@admin.register(NamespaceQuota)
class NamespaceQuotaAdmin(ReadOnlyAdmin):
    list_display = ("namespace", bytes_column("cdn_max_bytes"), bytes_column("cdn_monthly_bytes"), "policy")
    list_select_related = ("namespace",)
    search_fields = ("namespace__slug",)
    search_ids = ("namespace__id", "namespace__account__id")
    keyset = ("-pk",)


@admin.register(Pool)
class PoolAdmin(ReadOnlyAdmin):
    list_display = (
        "owner", "kind", link_column("account", text="name"), link_column("namespace", text="slug"),
        bytes_column("stored_bytes"), bytes_column("trashed_bytes"), bytes_column("reserved_bytes"), "month",
        bytes_column("month_bytes"),
    )  # fmt: skip
    list_filter = ("kind", ("account", IdFilter), ("namespace", IdFilter))
    list_select_related = ("account", "namespace")
    search_fields = ("=owner",)
    search_ids = ("owner", "account__id", "namespace__id")
    keyset = ("-pk",)


@admin.register(Permit)
class PermitAdmin(ReadOnlyAdmin):
    list_display = (
        "file", state_column("state"), bytes_column("size"), bytes_column("reserved_bytes"),
        bytes_column("received_bytes"), time_column("created_at"), time_column("expires_at"),
    )  # fmt: skip
    list_filter = ("state", ("created_at", AgeFilter))
    list_select_related = ("file",)
    search_fields = ("=file__id",)
    search_ids = ("file__id", "file__account__id")
    keyset = ("-pk",)
    exclude = ("token_hash",)


@admin.register(FileEvent)
class FileEventAdmin(AccountEventAdmin):
    subject_model = "cdn.File"
