"""The admin of hosts, which write their rows themselves. Staff only decide which of them take new machines."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from vmbackend import services
from vmbackend.models import Host


@admin.register(Host)
class HostAdmin(ModelAdmin):
    list_display = (
        "name",
        "accepts_new",
        "accelerated",
        "cpus",
        "memory_free_mb",
        "disk_free_mb",
        "last_seen_at",
    )
    readonly_fields = tuple(f.name for f in Host._meta.fields if f.name != "accepts_new")

    def has_add_permission(self, request: object) -> bool:
        return False  # a host adds itself when its vmhost starts

    def save_model(self, request: HttpRequest, obj: Host, form: Any, change: bool) -> None:
        services.host_update(name=obj.name, accepts_new=obj.accepts_new)

    def delete_model(self, request: HttpRequest, obj: Host) -> None:
        services.host_delete(name=obj.name)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for host in queryset:
            services.host_delete(name=host.name)
