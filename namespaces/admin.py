"""The admin of namespaces and of their activity."""

from __future__ import annotations

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, ServiceModelAdmin, staff_label
from namespaces import services
from namespaces.models import Namespace, NamespaceActivity


class NamespaceForm(forms.ModelForm):
    """Leaves the constraint of one default namespace to the service, which replaces the former one."""

    def _get_validation_exclusions(self) -> set[str]:
        return {*super()._get_validation_exclusions(), "is_default"}  # type: ignore[misc]  # not in the stubs


@admin.register(Namespace)
class NamespaceAdmin(ServiceModelAdmin):
    form = NamespaceForm
    list_display = ("slug", "account", "status", "type", "is_default", "created_at")
    list_filter = ("status", "type")
    search_fields = ("slug", "name", "account__name", "account__id")
    autocomplete_fields = ("account",)
    readonly_fields = ("created_at", "updated_at", "last_active_at", "deleted_at")

    def save_by_service(self, request: HttpRequest, obj: Namespace, *, change: bool) -> None:
        services.namespace_save(obj, actor=staff_label(request))

    def delete_by_service(self, request: HttpRequest, obj: Namespace) -> None:
        services.namespace_delete(namespace=obj, actor=staff_label(request))


@admin.register(NamespaceActivity)
class NamespaceActivityAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "namespace_id", "action", "user_id", "ip_address", "description")
    list_filter = ("action",)
    search_fields = ("namespace_id", "user_id", "account__id")
