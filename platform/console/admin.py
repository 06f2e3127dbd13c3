"""The admin of hosts, which write their rows themselves. Staff decide which of them take new machines.

Here, as `vmbackend` is below the apps with audit entries. Also what staff do with rows of an app by an app above it.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from console.terminals import TERMINAL
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.forms import ActionForm
from staff.parts.bases import ReadOnlyAdmin
from vmbackend import services
from vmbackend.labels import find_problem
from vmbackend.models import Host
from workspaces.admin import WorkspaceAdmin
from workspaces.host_columns import HostColumns

WorkspaceAdmin.add_staff_action(TERMINAL)


def _drain(act: Act) -> None:
    services.host_update(host_id=act.row.pk, accepts_new=False)


def _undrain(act: Act) -> None:
    services.host_update(host_id=act.row.pk, accepts_new=True)


class DescribeForm(ActionForm):
    """Form of labels and zone."""

    labels = forms.CharField(
        required=False, label="Labels", widget=UnfoldAdminTextareaWidget(), help_text="One NAME=VALUE on each line."
    )
    zone = forms.CharField(
        required=False, label="Zone", max_length=63, widget=UnfoldAdminTextInputWidget(),
        help_text="Hosts that fail together have the same.",
    )  # fmt: skip

    def clean_labels(self) -> dict[str, str]:
        lines = [line.strip() for line in self.cleaned_data["labels"].splitlines() if line.strip()]
        if wrong := next((line for line in lines if "=" not in line), None):
            raise forms.ValidationError(f"{wrong} is not NAME=VALUE.")
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if problem := find_problem(cleaned.get("labels", {}), cleaned.get("zone", "")):
            self.add_error(None, problem)
        return cleaned


def _describe(act: Act) -> None:
    services.host_describe(host_id=act.row.pk, labels=act.data["labels"], zone=act.data["zone"])


def _described(row: Host) -> dict[str, str]:
    return {"labels": "\n".join(f"{name}={value}" for name, value in sorted(row.labels.items())), "zone": row.zone}


def _delete(act: Act) -> None:
    services.host_delete(host_id=act.row.pk)


@admin.register(Host)
class HostAdmin(StaffActionsMixin, HostColumns, ReadOnlyAdmin):
    staff_actions = (
        StaffAction(
            name="drain", label="Drain", call=_drain, icon="output", allowed=lambda row: row.accepts_new,
            will="No new machine is placed on the host. Its machines go on, and are started and woken there; to "
            "empty the host, delete or destroy them, or wait for their owners.",
        ),
        StaffAction(
            name="undrain", label="Take new machines", call=_undrain, icon="input",
            allowed=lambda row: not row.accepts_new,
            will="New machines are placed on the host again.",
        ),
        StaffAction(
            name="describe", label="Set labels and zone", call=_describe, icon="label", form=DescribeForm, most=1,
            initial=_described,
            will="New machines are placed by them. Those that the host has stay, also if they asked for other labels.",
        ),
        StaffAction(
            name="remove", label="Delete", call=_delete, icon="delete", harms=True, permission="delete",
            will="The row of a host that is gone is deleted; it is refused while the host has workspaces. A host "
            "whose vmhost runs makes its row again.",
        ),
    )  # fmt: skip
