"""The audit entries of staff."""

from __future__ import annotations

from django.contrib import admin

from common.admin import ReadOnlyAdmin
from staff.models import StaffEntry


@admin.register(StaffEntry)
class StaffEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "user_name", "action", "object_label", "outcome", "reason", "detail", "ip_address")
    list_filter = ("outcome", "object_type")
    search_fields = ("=user_name", "=object_id", "=account_id", "=action")
    show_full_result_count = False
    actions = None
