"""Staff: pages, their releases and deploys, and their audit entries."""

from __future__ import annotations

from django.contrib import admin

from common.admin import ReadOnlyAdmin
from pages.models import Page, PageDeploy, PageEvent, PageRelease
from pages.staff_actions import ACTIONS
from staff.action_admin import StaffActionsMixin


@admin.register(Page)
class PageAdmin(StaffActionsMixin, ReadOnlyAdmin):
    list_display = ("slug", "name", "account", "namespace", "status", "release", "deployment_state", "created_at")
    list_filter = ("status", "deployment_state")
    list_select_related = ("account", "namespace")
    search_fields = ("slug", "name", "account__name", "account__id")
    staff_actions = ACTIONS


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
