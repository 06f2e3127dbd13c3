"""Admin of workspaces, their operations and their activity. The actions of staff are in `staff_actions`."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from accounts.audit_admin import AccountEventAdmin
from staff.action_admin import StaffActionsMixin
from staff.parts.bases import ReadOnlyAdmin
from staff.parts.columns import (
    bytes_column,
    credits_column,
    id_column,
    link_column,
    state_column,
    text_column,
    time_column,
)
from staff.parts.first_rows import OneOf
from staff.parts.lists import AgeFilter, IdFilter
from staff.subjects import Subject
from workspaces.admin_columns import (
    MOST_METERED,
    EndedFilter,
    cpu_time_of,
    duration_of,
    metered_numbers,
    metered_workspace,
    size_of,
)
from workspaces.images.admin import CatalogEntryAdmin
from workspaces.live_views import live_access
from workspaces.models import (
    Activity,
    BillingCycle,
    MeterRecord,
    Operation,
    PortLink,
    PublicPort,
    Snapshot,
    Usage,
    Workspace,
)
from workspaces.staff_actions import ACTIONS

__all__ = ["ActivityAdmin", "CatalogEntryAdmin", "OperationAdmin", "SnapshotAdmin", "WorkspaceAdmin"]


@admin.register(Workspace)
class WorkspaceAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = (
        "name", state_column("status", reason="error_message"), link_column("account", text="name"),
        link_column("namespace", text="slug"), size_of, link_column("host"), "ip",
        time_column("created_at"), "id",
    )  # fmt: skip
    list_filter = (
        "status", "mode", "kind", ("account", IdFilter), ("namespace", IdFilter), ("host", IdFilter),
        ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("account", "namespace", "host")
    search_fields = ("^name", "^slug", "account__name")
    search_ids, search_ips = ("id", "account__id", "namespace__id"), ("ip",)
    search_help_text = "Id, IP, beginning of a name or slug, part of an account's name"
    keyset = ("-id",)
    # Secrets of the owner, and columns that may hold secrets.
    exclude = ("env", "workloads", "cmd", "metadata")
    staff_actions = ACTIONS
    custom_urls = (("<path:object_id>/live/", "workspaces_workspace_live", live_access),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Workspace]:
        # Encrypted columns are shown nowhere, and cost more than the rest of a row.
        return super().get_queryset(request).defer("env", "workloads")

    def staff_rows(self, request: HttpRequest) -> QuerySet[Workspace]:
        return self.get_queryset(request).select_related("account__plan", "host", "namespace")

    def staff_subject(self, row: Workspace) -> Subject:
        return Subject(row.account_id, row.namespace_id, row.pk)


@admin.register(Operation)
class OperationAdmin(ReadOnlyAdmin):
    list_display = (
        "id", "kind", state_column("state"), link_column("workspace", text="name"), "step", "attempt",
        text_column("actor", length=24), text_column("error_message", "Why", length=48), time_column("created_at"),
        duration_of,
    )  # fmt: skip
    list_filter = (
        EndedFilter, "state", "kind", ("queue", IdFilter), ("workspace", IdFilter), ("account_id", IdFilter),
        ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("workspace",)
    search_fields = ("^workspace__name",)
    search_ids = ("id", "workspace__id", "account_id")
    search_help_text = "Id of an operation, workspace or account, beginning of a workspace's name"
    # Arguments may hold secrets of the owner.
    exclude = ("params", "claim")
    keyset = ("-id",)


@admin.register(Snapshot)
class SnapshotAdmin(ReadOnlyAdmin):
    list_display = (
        "name", state_column("status", reason="error_message"), link_column("account", text="name"),
        link_column("workspace", text="name"), bytes_column("size_bytes"), "memory", link_column("host"), "purpose",
        time_column("created_at"), time_column("deleted_at"), "id",
    )  # fmt: skip
    list_filter = (
        "status", "purpose", ("account", IdFilter), ("workspace", IdFilter), ("host", IdFilter),
        ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("account", "workspace", "host")
    search_fields = ("^name",)
    search_ids = ("id", "account__id", "workspace__id", "namespace__id")
    search_help_text = "Id of a snapshot, workspace, namespace or account, beginning of a name"
    # Secrets of the owner, and columns that may hold secrets.
    exclude = ("env", "workloads", "cmd")
    keyset = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Snapshot]:
        rows: QuerySet[Snapshot] = super().get_queryset(request)
        return rows.defer("env", "workloads")


@admin.register(PublicPort)
class PublicPortAdmin(ReadOnlyAdmin):
    list_display = (
        link_column("workspace", text="name"), "port", "access", "hash", "slug", "label", time_column("created_at"),
    )  # fmt: skip
    list_display_links = ("port", "hash")
    list_filter = ("access", ("workspace", IdFilter), ("account_id", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("workspace",)
    search_fields = ("=hash", "slug", "label")
    search_ids = ("workspace__id", "account_id")
    keyset = ("-id",)


@admin.register(PortLink)
class PortLinkAdmin(ReadOnlyAdmin):
    list_display = (
        "id", link_column("port"), "label", time_column("created_at"), time_column("expires_at"),
        time_column("last_used_at"),
    )  # fmt: skip
    list_filter = (("port", IdFilter), ("account_id", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("port",)
    search_fields = ("label",)
    search_ids = ("id", "port__workspace__id", "account_id")
    exclude = ("token_hash",)
    keyset = ("-id",)


@admin.register(Activity)
class ActivityAdmin(AccountEventAdmin):
    subject_model = "workspaces.Workspace"


@admin.register(Usage)
class UsageAdmin(ReadOnlyAdmin):
    list_display = (
        id_column("workspace_id", "workspaces.Workspace"), "tracking", cpu_time_of, bytes_column("total_disk_read"),
        bytes_column("total_disk_write"), bytes_column("total_net_rx"), bytes_column("total_net_tx"),
    )  # fmt: skip
    list_display_links = ("tracking",)
    list_filter = ("tracking",)
    search_fields = ("^workspace__name",)
    search_ids = ("workspace__id",)
    keyset = ("-id",)


@admin.register(MeterRecord)
class MeterRecordAdmin(ReadOnlyAdmin):
    list_display = (
        "tick_id", metered_workspace, "period_ms", "cpu_time_ns", "memory_mb_ms", bytes_column("disk_bytes"),
        bytes_column("network_bytes"),
    )  # fmt: skip
    list_filter = (("tick", AgeFilter),)
    list_select_related = ("metered",)
    search_help_text = f"Id of a workspace, or of a namespace or account for its {MOST_METERED} newest workspaces"
    search_fields = ("=metered__workspace_id",)
    keyset = ("-id",)
    search_keyset = ("-tick", "-id")  # as the index of the records of each workspace

    def search_conditions(self, term: str) -> list[Q]:
        """Return the condition of a search by an exact id. The numbers of its `Metered` rows are looked up first, as
        the table has no index of names.
        """
        if not term.strip():
            return []
        return [OneOf("metered", metered_numbers(term.strip()))]


@admin.register(BillingCycle)
class BillingCycleAdmin(ReadOnlyAdmin):
    list_display = ("__str__", "seconds", "workspaces", credits_column("credits"), time_column("closed_at"))
    keyset = ("-id",)

    @admin.display(description="Seconds")
    def seconds(self, obj: BillingCycle) -> int:
        return obj.end - obj.start
