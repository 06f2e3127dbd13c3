"""The admin of namespaces and of their activity."""

from __future__ import annotations

from itertools import chain
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from common.admin import ReadOnlyAdmin, ServiceModelAdmin, staff_label
from common.admin_columns import id_column, link_column, state_column, text_column, time_column
from common.admin_lists import AgeFilter, IdFilter
from common.responses import field_messages
from namespaces import services
from namespaces.models import Namespace, NamespaceActivity
from namespaces.serializers import UpdateNamespaceRequest
from namespaces.slugs import RULE, is_valid

EMPTY: dict[str, Any] = {"metadata": {}, "tags": [], "resource_limits": {}}


class NamespaceForm(forms.ModelForm):
    """Leaves the constraint of one default namespace to the service, which replaces the former one.

    Values of any JSON are those that the API takes, as it shows them again. The page carries the values that it showed:
    only what staff changed is written, beside what others wrote since.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            # What sends no such values writes all of the form.
            field.show_hidden_initial = not self.is_bound or self.add_initial_prefix(name) in self.data

    def _get_validation_exclusions(self) -> set[str]:
        return {*super()._get_validation_exclusions(), "is_default"}  # type: ignore[misc]  # not in the stubs

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        cleaned |= {name: empty for name, empty in EMPTY.items() if name in cleaned and cleaned[name] is None}
        checked = UpdateNamespaceRequest(data={name: cleaned[name] for name in EMPTY if name in cleaned})
        for name, errors in {} if checked.is_valid() else checked.errors.items():
            self.add_error(name, "; ".join(chain.from_iterable(field_messages(errors).values())))
        if "slug" in cleaned and not is_valid(cleaned["slug"]):
            self.add_error("slug", f"A slug has {RULE}")
        return cleaned


@admin.register(Namespace)
class NamespaceAdmin(ServiceModelAdmin):
    form = NamespaceForm
    list_display = (
        "slug", "name", link_column("account", text="name"), state_column("status"), "type", "is_default",
        time_column("last_active_at"), time_column("created_at"),
    )  # fmt: skip
    list_filter = ("status", "type", ("account", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("account",)
    search_fields = ("slug", "name", "account__name")
    search_ids = ("id", "account__id")
    search_help_text = "Id, slug, name, account"
    ordering = ("-id",)
    autocomplete_fields = ("account",)
    readonly_fields = ("created_at", "updated_at", "last_active_at", "deleted_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """What workspaces, balances and credentials refer to never changes."""
        return (*self.readonly_fields, "account", "slug") if obj else self.readonly_fields

    def save_model(self, request: HttpRequest, obj: Namespace, form: forms.ModelForm, change: bool) -> None:
        services.namespace_save(obj, actor=staff_label(request), changed=form.changed_data if change else None)

    def delete_by_service(self, request: HttpRequest, obj: Namespace) -> None:
        services.namespace_delete(namespace=obj, actor=staff_label(request))


@admin.register(NamespaceActivity)
class NamespaceActivityAdmin(ReadOnlyAdmin):
    list_display = (
        time_column("created_at", "When"), id_column("namespace_id", "namespaces.Namespace"), "action",
        text_column("user_id", "Who"), "ip_address", text_column("description", length=80),
    )  # fmt: skip
    list_filter = (("action", IdFilter), ("namespace_id", IdFilter), ("account", IdFilter), ("created_at", AgeFilter))
    search_fields = ("=user_id", "=action")
    search_ids = ("namespace_id", "account__id")
    keyset = ("-id",)
