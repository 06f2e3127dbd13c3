"""Staff: sandboxes and their audit entries. The machines are in the list of workspaces."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin
from sandboxes.models import Sandbox, SandboxEvent
from sandboxes.staff_actions import ACTIONS
from staff.action_admin import StaffActionsMixin
from staff.subjects import Subject


@admin.register(Sandbox)
class SandboxAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = ("id", "name", "account", "namespace", "status", "token_changed_at", "created_at")
    list_filter = ("workspace__status",)
    list_select_related = ("workspace__account", "workspace__namespace")
    search_fields = ("id", "workspace__name", "workspace__account__name", "workspace__account__id")
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

    @admin.display(ordering="workspace__name")
    def name(self, row: Sandbox) -> str:
        return row.workspace.name

    @admin.display(ordering="workspace__account")
    def account(self, row: Sandbox) -> str:
        return str(row.workspace.account)

    @admin.display(ordering="workspace__namespace")
    def namespace(self, row: Sandbox) -> str:
        return str(row.workspace.namespace)

    @admin.display(ordering="workspace__status")
    def status(self, row: Sandbox) -> str:
        return row.workspace.status


@admin.register(SandboxEvent)
class SandboxEventAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "sandbox_id", "action", "actor", "ip_address")
    search_fields = ("sandbox_id", "actor")
