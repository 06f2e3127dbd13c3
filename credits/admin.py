"""Staff: prices. A new price is a new row; one that has begun to hold stays as it is."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from unfold.admin import ModelAdmin

from credits.models import Rate


@admin.register(Rate)
class RateAdmin(ModelAdmin):
    list_display = ("unit", "credits", "effective_from")
    list_filter = ("unit",)
    actions = None  # the list's own deletion asks for no single row

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_to_come(obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_to_come(obj) and super().has_delete_permission(request, obj)


def _is_to_come(rate: Rate | None) -> bool:
    return rate is None or rate.effective_from > timezone.now()
