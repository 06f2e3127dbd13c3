"""Staff: pages, their releases and deploys, and their audit entries."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, ServiceModelAdmin, call_for_each, staff_label
from pages import publication, services
from pages.models import Page, PageDeploy, PageEvent, PageRelease


@admin.register(Page)
class PageAdmin(ServiceModelAdmin):
    list_display = ("slug", "name", "account", "namespace", "status", "release", "deployment_state", "created_at")
    list_filter = ("status", "deployment_state")
    list_select_related = ("account", "namespace")
    search_fields = ("slug", "name", "account__name", "account__id")
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
    list_display = ("page", "number", "files", "bytes", "skipped_count", "actor", "created_at")
    list_select_related = ("page",)
    search_fields = ("page__slug", "page__account__id")


@admin.register(PageDeploy)
class PageDeployAdmin(ReadOnlyAdmin):
    list_display = ("page", "state", "step", "attempt", "workspace_id", "error_code", "created_at", "finished_at")
    list_filter = ("state",)
    list_select_related = ("page",)
    search_fields = ("page__slug", "page__account__id", "workspace_id")


@admin.register(PageEvent)
class PageEventAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "page_id", "action", "actor", "ip_address", "detail")
    search_fields = ("page_id", "actor")
