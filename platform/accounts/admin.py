"""Staff: plans, accounts and their credentials. A new credential's secret is shown once, as a message."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from accounts import services
from accounts.hooks import Pin, account_created
from accounts.models import Account, Credential, Plan
from accounts.scopes import Scope


@admin.register(Plan)
class PlanAdmin(ModelAdmin):
    list_display = ("code", "label", "max_workspaces", "cpus", "memory_mb", "disk_size_mb")


@admin.register(Account)
class AccountAdmin(ModelAdmin):
    list_display = ("id", "name", "plan", "is_active", "created_at")
    list_filter = ("plan", "is_active")
    search_fields = ("id", "name")
    readonly_fields = ("created_at", "updated_at")

    def save_model(self, request: HttpRequest, obj: Account, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change:
            account_created(obj)
            made = services.credential_issue(account=obj, name="first", scope=Scope.ACCOUNT, pin=Pin())
            _show_once(request, made)


@admin.register(Credential)
class CredentialAdmin(ModelAdmin):
    list_display = ("client_id", "account", "name", "scope", "namespace_slug", "workspace_id", "last_used_at")
    list_filter = ("scope",)
    search_fields = ("client_id", "name", "account__name", "account__id")
    autocomplete_fields = ("account",)
    readonly_fields = (
        "client_id",
        "namespace_id",
        "namespace_slug",
        "workspace_id",
        "last_used_at",
        "created_at",
    )
    fields = ("account", "name", "scope", *readonly_fields)

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        # Pinned scopes are issued through the API, where the pin is resolved and checked.
        if db_field.name == "scope":
            kwargs["choices"] = [(Scope.ACCOUNT, "account"), (Scope.BILLING, "billing")]
        return super().formfield_for_choice_field(db_field, request, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Credential | None = None) -> Any:
        return (*self.readonly_fields, "account", "scope") if obj else self.readonly_fields

    def save_model(self, request: HttpRequest, obj: Credential, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        made = services.credential_issue(account=obj.account, name=obj.name, scope=Scope(obj.scope), pin=Pin())
        obj.pk = made.credential.pk
        obj.__dict__.update({k: v for k, v in made.credential.__dict__.items() if not k.startswith("_")})
        obj._state.adding = False
        _show_once(request, made)


def _show_once(request: HttpRequest, made: services.NewCredential) -> None:
    messages.warning(
        request, f"Client id {made.credential.client_id}, secret {made.secret}; the secret is shown only now."
    )
