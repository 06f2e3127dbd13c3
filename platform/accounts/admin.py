"""The admin of plans, accounts and credentials. A new credential's secret is shown once, as a message."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest

from accounts import services
from accounts.models import Account, Credential, Plan
from accounts.scopes import Scope, ScopeBinding
from staff.action_admin import DeletedByActionMixin
from staff.actions import Act, StaffAction
from staff.parts.bases import ServiceModelAdmin, replace_fields
from staff.parts.columns import id_column, link_column, time_column
from staff.parts.lists import AgeFilter, IdFilter
from staff.subjects import Subject


def _deactivate(act: Act) -> None:
    services.account_switch(act.row, is_active=False)


def _activate(act: Act) -> None:
    services.account_switch(act.row, is_active=True)


@admin.register(Plan)
class PlanAdmin(DeletedByActionMixin, ServiceModelAdmin):
    list_display = ("code", "label", "max_workspaces", "cpus", "memory_mb", "disk_size_mb")
    staff_actions = (
        StaffAction(
            name="remove", label="Delete", call=lambda act: services.plan_delete(act.row), icon="delete", harms=True,
            permission="delete",
            will="The plan is deleted; it is refused while an account has it. This cannot be undone.",
        ),
    )  # fmt: skip

    def get_readonly_fields(self, request: HttpRequest, obj: Plan | None = None) -> tuple[str, ...]:
        """Return the fields that a form does not change. The code is the key: with another one the form would write
        that plan.
        """
        return ("code",) if obj else ()

    def save_by_service(self, request: HttpRequest, obj: Plan, *, change: bool) -> None:
        services.plan_save(obj)


@admin.register(Account)
class AccountAdmin(DeletedByActionMixin, ServiceModelAdmin):
    list_display = (
        "name", "id", link_column("plan"), "is_active", "workspace_count", time_column("created_at"),
    )  # fmt: skip
    list_filter = (("plan", IdFilter), "is_active", ("created_at", AgeFilter))
    list_select_related = ("plan",)
    search_fields = ("name",)
    search_ids = ("id",)
    search_help_text = "Id or name"
    keyset = ("-id",)
    readonly_fields = ("created_at", "updated_at")
    staff_actions = (
        StaffAction(
            name="deactivate", label="Deactivate", call=_deactivate, icon="block", harms=True,
            allowed=lambda row: row.is_active,
            will="The credentials and tokens of the account are refused, and its public ports, pages, files and "
            "domains are not served, until it is activated. Machines go on running, and are charged.",
        ),
        StaffAction(
            name="activate", label="Activate", call=_activate, icon="check", allowed=lambda row: not row.is_active,
            owner_reads=True,
            will="The credentials and tokens of the account are accepted again, and what it publishes is served.",
        ),
        StaffAction(
            name="remove", label="Delete", call=lambda act: services.account_delete(act.row), icon="delete",
            harms=True, permission="delete",
            will="The account is deleted with its credentials, namespaces and webhooks; it is refused while it has "
            "workspaces or pages. This cannot be undone.",
        ),
    )  # fmt: skip

    def get_readonly_fields(self, request: HttpRequest, obj: Account | None = None) -> Any:
        """Return the fields that a form does not change. Actions, which take a reason, activate and deactivate an
        account.
        """
        return (*self.readonly_fields, "is_active") if obj else self.readonly_fields

    def staff_subject(self, row: Account) -> Subject:
        return Subject(account_id=row.pk)

    def save_by_service(self, request: HttpRequest, obj: Account, *, change: bool) -> None:
        if change:
            services.account_update(obj, name=obj.name, plan=obj.plan)
            return
        account, issued = services.account_create(name=obj.name, plan=obj.plan_id)
        if not obj.is_active:
            services.account_switch(account, is_active=False)
        replace_fields(obj, account)
        _show_secret(request, issued)


@admin.register(Credential)
class CredentialAdmin(DeletedByActionMixin, ServiceModelAdmin):
    list_display = (
        "client_id", link_column("account", text="name"), "name", "scope", "namespace_slug",
        id_column("workspace_id", "workspaces.Workspace"), time_column("last_used_at"), time_column("created_at"),
    )  # fmt: skip
    list_filter = ("scope", ("account", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("account",)
    search_fields = ("=client_id", "name", "account__name")
    search_ids = ("id", "account__id", "workspace_id", "namespace_id")
    keyset = ("-id",)
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
    staff_actions = (
        StaffAction(
            name="end_tokens", label="Replace the secret", call=lambda act: services.credential_end(act.row),
            icon="key_off", harms=True,
            will="The secret and every token that was minted with it are refused from now on. The new secret is not "
            "shown to anybody: the owner rotates the credential with another one to get a secret that works.",
        ),
        StaffAction(
            name="revoke", label="Revoke", call=lambda act: services.credential_remove(act.row), icon="delete",
            harms=True, permission="delete",
            will="The credential is deleted: it and its tokens are refused from now on. This cannot be undone.",
        ),
    )  # fmt: skip

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        # Bound scopes are issued through the API, where the binding is looked up and checked.
        if db_field.name == "scope":
            kwargs["choices"] = [(Scope.ACCOUNT, "account"), (Scope.BILLING, "billing")]
        return super().formfield_for_choice_field(db_field, request, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Credential | None = None) -> Any:
        return (*self.readonly_fields, "account", "scope") if obj else self.readonly_fields

    def save_by_service(self, request: HttpRequest, obj: Credential, *, change: bool) -> None:
        if change:
            services.credential_rename(obj, name=obj.name)
            return
        scope = Scope(obj.scope)
        issued = services.credential_issue(account=obj.account, name=obj.name, scope=scope, binding=ScopeBinding())
        replace_fields(obj, issued.credential)
        _show_secret(request, issued)


def _show_secret(request: HttpRequest, issued: services.NewCredential) -> None:
    client_id = issued.credential.client_id
    messages.warning(request, f"Client id {client_id}, secret {issued.secret}; the secret is shown only now.")
