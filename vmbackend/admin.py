from django.contrib import admin
from unfold.admin import ModelAdmin

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
