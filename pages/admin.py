"""Admin pages of pages, their releases, deploys and audit entries."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q

from accounts.audit_admin import AccountEventAdmin
from pages.models import Page, PageDeploy, PageEvent, PageRelease
from pages.staff_actions import ACTIONS
from pages.states import LIVE
from staff.action_admin import StaffActionsMixin
from staff.parts.bases import ReadOnlyAdmin
from staff.parts.columns import (
    bytes_column,
    id_column,
    link_column,
    state_column,
    text_column,
    time_column,
)
from staff.parts.lists import AgeFilter, ConditionFilter, IdFilter


@admin.register(Page)
class PageAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = (
        "slug", "name", link_column("account", text="name"), link_column("namespace", text="slug"),
        state_column("status"), "release", state_column("deployment_state", "Last deploy", reason="deployment_error"),
        bytes_column("kept_bytes", "Files"), time_column("created_at"),
    )  # fmt: skip
    list_filter = (
        "status", "deployment_state", ("account", IdFilter), ("namespace", IdFilter),
        ("source_workspace_id", IdFilter), ("created_at", AgeFilter),
    )  # fmt: skip
    list_select_related = ("account", "namespace")
    search_fields = ("slug", "name", "account__name")
    search_ids = ("id", "account__id", "namespace__id", "source_workspace_id")
    keyset = ("-id",)
    staff_actions = ACTIONS


@admin.register(PageRelease)
class PageReleaseAdmin(ReadOnlyAdmin):
    list_display = (
        "number", link_column("page", text="slug"), "files", bytes_column("bytes"), "skipped_count",
        text_column("actor"), time_column("created_at"),
    )  # fmt: skip
    list_filter = (("page", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("page",)
    search_fields = ("page__slug",)
    search_ids = ("page__id", "page__account__id")
    keyset = ("-id",)


class LiveFilter(ConditionFilter):
    title = "progress"
    parameter_name = "live"
    conditions = {"1": ("In flight", lambda: Q(state__in=LIVE))}


@admin.register(PageDeploy)
class PageDeployAdmin(ReadOnlyAdmin):
    list_display = (
        "id", link_column("page", text="slug"), state_column("state", reason="error_message"), "step", "attempt",
        id_column("workspace_id", "workspaces.Workspace"), "error_code", time_column("created_at"),
        time_column("finished_at"),
    )  # fmt: skip
    list_filter = (LiveFilter, "state", ("page", IdFilter), ("workspace_id", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("page",)
    search_fields = ("page__slug",)
    search_ids = ("id", "page__id", "page__account__id", "workspace_id")
    keyset = ("-id",)


@admin.register(PageEvent)
class PageEventAdmin(AccountEventAdmin):
    subject_model = "pages.Page"
