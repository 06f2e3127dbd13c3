from django.contrib import admin
from unfold.admin import ModelAdmin

from namespaces.models import Namespace


@admin.register(Namespace)
class NamespaceAdmin(ModelAdmin):
    list_display = ("slug", "account", "status", "type", "is_default", "created_at")
    list_filter = ("status", "type")
    search_fields = ("slug", "name", "account__name", "account__id")
    autocomplete_fields = ("account",)
    readonly_fields = ("created_at", "updated_at", "last_active_at")
