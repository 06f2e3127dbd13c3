"""Staff: sandboxes and their audit entries. The machines are in the list of workspaces."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.audit_admin import AccountEventAdmin
from sandboxes.models import Sandbox, SandboxEvent
from sandboxes.staff_actions import ACTIONS
from staff.action_admin import StaffActionsMixin
from staff.parts.bases import ReadOnlyAdmin
from staff.parts.columns import link_column, state_column, time_column
from staff.parts.lists import AgeFilter, IdFilter
from staff.subjects import Subject


@admin.register(Sandbox)
class SandboxAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = (
        "id", link_column("workspace", text="name"), link_column("workspace__account", text="name"),
        link_column("workspace__namespace", text="slug"), state_column("workspace__status", "Status"),
        time_column("token_changed_at"), time_column("created_at"),
    )  # fmt: skip
    list_filter = (
        "workspace__status", ("workspace__account", IdFilter), ("workspace__namespace", IdFilter),
        ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("workspace__account", "workspace__namespace")
    search_fields = ("^workspace__name", "workspace__account__name")
    search_ids = ("id", "workspace__id", "workspace__account__id")
    search_ips = ("workspace__ip",)
    keyset = ("-id",)
    exclude = ("token_hash",)
    staff_actions = ACTIONS

    def staff_rows(self, request: HttpRequest) -> QuerySet[Sandbox]:
        related = ("workspace__account__plan", "workspace__host", "workspace__namespace")
        return super().get_queryset(request).select_related(*related)

    def staff_subject(self, row: Sandbox) -> Subject:
        return Subject(row.workspace.account_id, row.workspace.namespace_id, row.workspace_id)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Sandbox]:
        # The secrets of the machines are not decrypted for a list.
        return super().get_queryset(request).defer("workspace__env", "workspace__workloads")


@admin.register(SandboxEvent)
class SandboxEventAdmin(AccountEventAdmin):
    subject_model = "sandboxes.Sandbox"
