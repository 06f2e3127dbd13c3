"""Admin of code assistance for staff: API keys, the counts of each day, calls in progress, audit entries. A key is
shown once.
"""

from __future__ import annotations

from django.contrib import admin, messages
from django.http import HttpRequest

from accounts.audit_admin import AccountEventAdmin
from assist import services
from assist.models import ApiKey, Call, DayCount, KeyEvent
from staff.action_admin import DeletedByActionMixin
from staff.actions import Act, StaffAction
from staff.parts.bases import ReadOnlyAdmin, ServiceModelAdmin, replace_fields, staff_label
from staff.parts.columns import id_column, link_column, time_column
from staff.parts.lists import AgeFilter, IdFilter


def _revoke(act: Act) -> None:
    services.api_key_delete(api_key=act.row, actor=act.actor, origin=act.origin)


@admin.register(ApiKey)
class ApiKeyAdmin(DeletedByActionMixin, ServiceModelAdmin):
    list_display = (
        "key_prefix", "name", link_column("account", text="name"), link_column("namespace", text="slug"),
        time_column("last_used_at"), time_column("created_at"),
    )  # fmt: skip
    list_filter = (("account", IdFilter), ("namespace", IdFilter), ("created_at", AgeFilter))
    list_select_related = ("account", "namespace")
    search_fields = ("=key_prefix", "name", "account__name")
    search_ids = ("account__id", "namespace__id")
    keyset = ("-pk",)
    autocomplete_fields = ("account",)
    readonly_fields = ("key_prefix", "namespace", "last_used_at", "created_at")
    fields = ("account", "name", *readonly_fields)
    staff_actions = (
        StaffAction(
            name="revoke", label="Revoke", call=_revoke, icon="key_off", harms=True, permission="delete",
            will="The key is deleted: the next request with it is refused. It cannot be undone.",
        ),
    )  # fmt: skip

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        return (*self.readonly_fields, "account") if obj else self.readonly_fields

    def save_by_service(self, request: HttpRequest, obj: ApiKey, *, change: bool) -> None:
        """Rename a key, or make one for the whole account: keys of a namespace are made through the API, which looks it
        up.
        """
        actor = staff_label(request)
        if change:
            services.api_key_rename(api_key=obj, name=obj.name, actor=actor)
            return
        made = services.api_key_create(account=obj.account, name=obj.name, namespace=None, actor=actor)
        replace_fields(obj, made.api_key)
        text = f"Key {made.key}, webhook secret {made.webhook_secret}; both are shown only now."
        messages.warning(request, text)


@admin.register(DayCount)
class DayCountAdmin(ReadOnlyAdmin):
    list_display = ("day", link_column("account", text="name"), "used")
    list_filter = ("day", ("account", IdFilter))
    list_select_related = ("account",)
    search_fields = ("account__name",)
    search_ids = ("account__id",)
    keyset = ("-day", "-pk")


@admin.register(Call)
class CallAdmin(ReadOnlyAdmin):
    list_display = (
        "id", link_column("account", text="name"), id_column("namespace_id", "namespaces.Namespace"),
        time_column("created_at"), time_column("expires_at"),
    )  # fmt: skip
    list_filter = (("account", IdFilter),)
    list_select_related = ("account",)
    search_fields = ("account__name",)
    search_ids = ("account__id",)
    keyset = ("-id",)


@admin.register(KeyEvent)
class KeyEventAdmin(AccountEventAdmin):
    subject_model = "assist.ApiKey"
