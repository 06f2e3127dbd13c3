"""The admin of rates. A new price is a new row; a rate that is valid already cannot be changed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from common.admin import ServiceModelAdmin
from credits import services
from credits.models import Rate


@admin.register(Rate)
class RateAdmin(ServiceModelAdmin):
    list_display = ("unit", "credits", "effective_from")
    list_filter = ("unit",)
    actions = None  # the bulk deletion does not check permissions for each row

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return (obj is None or services.is_future(obj)) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return (obj is None or services.is_future(obj)) and super().has_delete_permission(request, obj)

    def save_by_service(self, request: HttpRequest, obj: Rate, *, change: bool) -> None:
        services.rate_save(obj)

    def delete_by_service(self, request: HttpRequest, obj: Rate) -> None:
        services.rate_delete(obj)
