"""Staff: the image catalog."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from common.admin import ServiceModelAdmin
from workspaces.images import catalog_snapshots, services
from workspaces.images.models import CatalogEntry


@admin.register(CatalogEntry)
class CatalogEntryAdmin(ServiceModelAdmin):
    list_display = ("icon", "id", "label", "category", "image", "preset", "recommended", "is_shown", "revision")
    list_display_links = ("id", "label")
    list_filter = ("category", "recommended", "is_shown", "os_family")
    search_fields = ("id", "label", "desc", "image", "preset")
    readonly_fields = ("revision", "created_at", "updated_at")
    actions = ("show_entries", "hide_entries")
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

    def delete_by_service(self, request: HttpRequest, obj: CatalogEntry) -> None:
        services.catalog_entry_delete(entry=obj)

    @admin.display(description="")
    def icon(self, entry: CatalogEntry) -> SafeString:
        return format_html('<img src="{}" alt="" width="24" height="24">', catalog_snapshots.logo_url(entry.logo) or "")

    @admin.action(description="Show in the catalog")
    def show_entries(self, request: HttpRequest, rows: QuerySet[CatalogEntry]) -> None:
        messages.success(request, f"Shown: {services.catalog_entries_show(entries=rows, shown=True)}.")

    @admin.action(description="Hide from the catalog and disable the presets")
    def hide_entries(self, request: HttpRequest, rows: QuerySet[CatalogEntry]) -> None:
        messages.success(request, f"Hidden: {services.catalog_entries_show(entries=rows, shown=False)}.")
