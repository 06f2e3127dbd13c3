"""The admin of namespaces and of their activity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminIntegerFieldWidget

from accounts.audit_admin import AccountEventAdmin
from common.responses import field_messages
from namespaces import services
from namespaces.limits import LIMIT_NAMES, all_limits
from namespaces.models import Namespace, NamespaceActivity, Status
from namespaces.serializers import UpdateNamespaceRequest
from namespaces.slugs import RULE, is_valid
from staff.action_admin import DeletedByActionMixin
from staff.actions import Act, StaffAction
from staff.forms import ActionForm
from staff.parts.bases import ServiceModelAdmin, staff_label
from staff.parts.columns import link_column, state_column, time_column
from staff.parts.forms import ReasonedForm
from staff.parts.lists import AgeFilter, IdFilter
from staff.subjects import Subject

EMPTY: dict[str, Any] = {"metadata": {}, "tags": [], "resource_limits": {}}


class NamespaceForm(ReasonedForm):
    """Form that leaves the constraint of one default namespace to the service, which replaces the former one.

    Values of any JSON are those that the API takes, as it shows them again. The page carries the values that it showed:
    only the fields that staff changed are written, so that changes by others in between stay.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            # A client that sends no such values writes all of the form.
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


def _by(service: Callable[..., object]) -> Callable[[Act], object]:
    return lambda act: service(namespace=act.row, actor=act.actor, origin=act.origin)


class LimitsForm(ActionForm):
    """Form of the API's limits; an empty field is no limit."""

    max_workspaces = forms.IntegerField(required=False, label="Workspaces", widget=UnfoldAdminIntegerFieldWidget())
    max_vcpus = forms.FloatField(required=False, label="vCPUs", widget=UnfoldAdminDecimalFieldWidget())
    max_ram_mb = forms.IntegerField(required=False, label="Memory, in MiB", widget=UnfoldAdminIntegerFieldWidget())
    max_disk_gb = forms.FloatField(required=False, label="Disk, in GiB", widget=UnfoldAdminDecimalFieldWidget())

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        checked = UpdateNamespaceRequest(data={"resource_limits": limits_of(cleaned)})
        if not checked.is_valid():
            self.add_error(None, "; ".join(chain.from_iterable(field_messages(checked.errors).values())))
        return cleaned


def limits_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits that are set."""
    return {name: data[name] for name in LIMIT_NAMES if data.get(name) is not None}


def _set_limits(act: Act) -> None:
    services.namespace_update(
        namespace=act.row, changes={"resource_limits": limits_of(act.data)}, actor=act.actor, origin=act.origin
    )


@admin.register(Namespace)
class NamespaceAdmin(DeletedByActionMixin, ServiceModelAdmin):
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
    keyset = ("-id",)
    autocomplete_fields = ("account",)
    # Actions, which take a reason, suspend and activate it; a quota does so through its balance.
    readonly_fields = (
        "status", "suspended_by_hand", "suspended_by_quota", "created_at", "updated_at", "last_active_at", "deleted_at",
    )  # fmt: skip

    staff_actions = (
        StaffAction(
            name="suspend", label="Suspend", call=_by(services.namespace_suspend), icon="block", harms=True,
            is_atomic=False, allowed=lambda row: not row.suspended_by_hand and not row.is_default,
            will="Every machine in the namespace is stopped, and none is made or started until it is activated.",
        ),
        StaffAction(
            name="activate", label="Activate", call=_by(services.namespace_activate), icon="check",
            allowed=lambda row: row.suspended_by_hand or row.status == Status.INACTIVE,
            will="The suspension by hand ends. Machines are not started again; a suspension by a quota stays.",
        ),
        StaffAction(
            name="set_limits", label="Set limits", call=_set_limits, icon="speed", harms=True, most=1, form=LimitsForm,
            initial=lambda row: all_limits(row.resource_limits),
            will="The namespace's limits are replaced; its owner may set others within the plan. Machines run on.",
        ),
        StaffAction(
            name="make_default", label="Make it the default", call=_by(services.namespace_make_default), icon="star",
            harms=True, most=1, allowed=lambda row: not row.is_default and not row.suspended_by_hand,
            will="It takes the place of the account's default namespace: resources without a namespace are made in "
            "it, and the resources of deleted namespaces are moved to it.",
        ),
        StaffAction(
            name="stop_all", label="Stop all machines", call=_by(services.namespace_stop_workspaces), icon="stop",
            harms=True, is_atomic=False,
            will="Every machine that runs in the namespace is stopped. Its owner may start them again.",
        ),
        StaffAction(
            name="remove", label="Delete", call=_by(services.namespace_delete), icon="delete", harms=True,
            permission="delete", allowed=lambda row: not row.is_default,
            will="The namespace is deleted with its webhooks. Its workspaces and pages are moved to the default one.",
        ),
    )  # fmt: skip

    def staff_subject(self, row: Namespace) -> Subject:
        return Subject(row.account_id, row.pk)

    def staff_rows(self, request: HttpRequest) -> QuerySet[Namespace]:
        return self.get_queryset(request).select_related("account__plan")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the fields read-only to which workspaces, balances and credentials refer, after the creation."""
        if obj is None:
            return self.readonly_fields
        # Actions, which take a reason, write the last two.
        return (*self.readonly_fields, "account", "slug", "resource_limits", "is_default")

    def save_model(self, request: HttpRequest, obj: Namespace, form: forms.ModelForm[Any], change: bool) -> None:
        services.namespace_save(obj, actor=staff_label(request), changed=form.changed_data if change else None)


@admin.register(NamespaceActivity)
class NamespaceActivityAdmin(AccountEventAdmin):
    subject_model = "namespaces.Namespace"
