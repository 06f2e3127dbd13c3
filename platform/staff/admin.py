"""Staff: the users of this admin, their groups, and the audit entries."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.models import Authenticator, StaffEntry
from staff.parts.bases import AuditedFormsMixin, ReadOnlyAdmin
from staff.parts.columns import state_column, text_column, time_column
from staff.parts.lists import AgeFilter, CheckedListMixin, IdFilter
from staff.parts.pages import HistoryMixin
from staff.second_factor import services

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(StaffEntry)
class StaffEntryAdmin(ReadOnlyAdmin):
    list_display = (
        time_column("at", "When"), "user_name", "action", text_column("object_label", "What", 40),
        state_column("outcome"), text_column("reason", length=48), text_column("detail", length=48), "ip_address",
    )  # fmt: skip
    list_filter = (
        "outcome", ("action", IdFilter), ("user_name", IdFilter), ("object_type", IdFilter), ("object_id", IdFilter),
        ("account_id", IdFilter), ("at", AgeFilter),
    )  # fmt: skip
    search_fields = ("=user_name", "=object_id", "=action")
    search_ids = ("object_id", "account_id")
    keyset = ("-id",)
    actions = None


def _reset_factor(act: Act) -> None:
    by = User.objects.filter(pk=act.user_id or 0, is_superuser=True).exists()
    services.require_reset_allowed(act.row.is_superuser, by, is_own=act.row.pk == act.user_id)
    services.factor_reset(act.row.pk)


@admin.register(User)
class StaffUserAdmin(
    StaffActionsMixin,
    CheckedListMixin,
    HistoryMixin,
    AuditedFormsMixin,
    UserAdmin,  # type: ignore[type-arg]  # Django has none at run time
    ModelAdmin,  # type: ignore[misc]  # unfold has no types
):
    """Users of staff. Only a superuser makes or changes one, or gives permissions beside the groups."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "is_active", "is_staff", "is_superuser", "second_factor", time_column("last_login"))
    list_filter = ("is_active", "is_staff", "is_superuser", "groups")
    search_fields = ("username",)
    readonly_fields = ("last_login", "date_joined")

    staff_actions = (
        StaffAction(
            name="reset_factor",
            label="Reset the second factor",
            call=_reset_factor,
            icon="phonelink_erase",
            harms=True,
            permission="staff.reset_second_factor",
            allowed=lambda row: row.has_factor,
            most=1,
            will="The second factor and the recovery codes are removed: the password alone logs in, until the user "
            "sets up another. Make sure that the user asked for this.",
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        confirmed = Authenticator.objects.filter(user=OuterRef("pk"), confirmed=True)
        rows: QuerySet[User] = super().get_queryset(request).annotate(has_factor=Exists(confirmed))
        return rows

    @admin.display(boolean=True)
    def second_factor(self, row: Any) -> bool:
        return bool(row.has_factor)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = () if request.user.is_superuser else ("is_superuser", "user_permissions")
        return (*self.readonly_fields, *fixed)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may(request, obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may(request, obj) and super().has_delete_permission(request, obj)


@admin.register(Group)
class StaffGroupAdmin(
    CheckedListMixin,
    HistoryMixin,
    AuditedFormsMixin,
    GroupAdmin,
    ModelAdmin,  # type: ignore[misc]  # unfold has no types
):
    actions = None


def _may(request: HttpRequest, obj: Any) -> bool:
    return bool(request.user.is_superuser or not getattr(obj, "is_superuser", False))
