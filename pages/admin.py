"""Staff: pages, their releases and deploys, and their audit entries."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, ServiceModelAdmin, call_for_each, staff_label
from common.admin_columns import (
    bytes_column,
    id_column,
    link_column,
    state_column,
    text_column,
    time_column,
)
from common.admin_lists import AgeFilter, ConditionFilter, IdFilter
from pages import publication, services
from pages.models import Page, PageDeploy, PageEvent, PageRelease
from pages.states import LIVE


@admin.register(Page)
class PageAdmin(ServiceModelAdmin):
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
    ordering = ("-id",)
    readonly_fields = tuple(field.name for field in Page._meta.concrete_fields)
    actions = ("enable", "disable")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def save_by_service(self, request: HttpRequest, obj: Page, *, change: bool) -> None:
        """Nothing of a page can be edited; actions change it."""

    def delete_by_service(self, request: HttpRequest, obj: Page) -> None:
        deleted = services.page_delete(page=obj, actor=staff_label(request))
        publication.remove_on_commit(deleted)

    @admin.action(description="Enable")
    def enable(self, request: HttpRequest, rows: QuerySet[Page]) -> None:
        actor = staff_label(request)
        call_for_each(request, rows, lambda row: publication.publish_page(services.page_enable(page=row, actor=actor)))

    @admin.action(description="Disable")
    def disable(self, request: HttpRequest, rows: QuerySet[Page]) -> None:
        actor = staff_label(request)
        call_for_each(request, rows, lambda row: publication.publish_page(services.page_disable(page=row, actor=actor)))


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
class PageEventAdmin(ReadOnlyAdmin):
    list_display = (
        time_column("created_at", "When"), id_column("page_id", "pages.Page"), "action", text_column("actor"),
        "ip_address", text_column("detail", length=80),
    )  # fmt: skip
    list_filter = (("action", IdFilter), ("page_id", IdFilter), ("account", IdFilter), ("created_at", AgeFilter))
    search_fields = ("=actor", "=action")
    search_ids = ("page_id", "account__id")
    keyset = ("-id",)
