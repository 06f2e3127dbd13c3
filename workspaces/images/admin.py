"""Staff: the image catalog."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from staff.action_admin import DeletedByActionMixin
from staff.actions import Act, StaffAction
from staff.parts.bases import ServiceModelAdmin
from workspaces.images import catalog_snapshots, services
from workspaces.images.models import CatalogEntry


def _show(act: Act) -> None:
    services.catalog_entries_show(entries=CatalogEntry.objects.filter(pk=act.row.pk), shown=True)


def _hide(act: Act) -> None:
    services.catalog_entries_show(entries=CatalogEntry.objects.filter(pk=act.row.pk), shown=False)


@admin.register(CatalogEntry)
class CatalogEntryAdmin(DeletedByActionMixin, ServiceModelAdmin):
    list_display = ("icon", "id", "label", "category", "image", "preset", "recommended", "is_shown", "revision")
    list_display_links = ("id", "label")
    list_filter = ("category", "recommended", "is_shown", "os_family")
    search_fields = ("id", "label", "desc", "image", "preset")
    readonly_fields = ("revision", "created_at", "updated_at")
    staff_actions = (
        StaffAction(
            name="show_entries", label="Show in the catalog", call=_show, icon="visibility",
            allowed=lambda row: not row.is_shown,
            will="New workspaces may be made from the entries again.",
        ),
        StaffAction(
            name="hide_entries", label="Hide from the catalog", call=_hide, icon="visibility_off",
            allowed=lambda row: row.is_shown,
            will="The entries are not listed, and their presets are refused. Workspaces that were made from them stay.",
        ),
        StaffAction(
            name="remove", label="Delete", call=lambda act: services.catalog_entry_delete(entry=act.row),
            icon="delete", harms=True, permission="delete",
            will="The entry is deleted, and its preset is refused. Workspaces that were made from it stay. It cannot "
            "be undone; an entry that is hidden can be shown again.",
        ),
    )  # fmt: skip
    fieldsets = (
        (None, {"fields": ("id", "label", "desc", "category", "recommended", "position", "is_shown")}),
        ("Image", {"fields": ("image", "base_image", "preset", "os_family", "os_distribution", "os_version")}),
        ("Appearance", {"fields": ("logo", "color", "includes", "software", "keywords")}),
        ("Defaults for workspaces", {"fields": ("env", "vm_defaults", "capabilities", "desktop")}),
        ("History", {"fields": readonly_fields}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: CatalogEntry | None = None) -> Any:
        return (*self.readonly_fields, "id") if obj else self.readonly_fields

    def save_by_service(self, request: HttpRequest, obj: CatalogEntry, *, change: bool) -> None:
        services.catalog_entry_save(entry=obj)

    @admin.display(description="")
    def icon(self, entry: CatalogEntry) -> SafeString:
        return format_html('<img src="{}" alt="" width="24" height="24">', catalog_snapshots.logo_url(entry.logo) or "")
