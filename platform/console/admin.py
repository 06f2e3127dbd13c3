"""The admin of hosts, which write their rows themselves. Staff decide what they are for: the state.

Here, as `vmbackend` is below the apps with audit entries. Also what staff do with rows of an app by an app above it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from console.terminals import TERMINAL
from hosts.services import cut_off, host_remove
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.forms import ActionForm
from staff.parts.bases import ReadOnlyAdmin
from vmbackend import services
from vmbackend.host_states import ALLOWED, HostState
from vmbackend.labels import find_problem
from vmbackend.models import Host
from workspaces.admin import WorkspaceAdmin
from workspaces.host_changes import host_give_up, host_state_change
from workspaces.host_columns import HostColumns
from workspaces.moves.drains import DrainRequest, host_drain

WorkspaceAdmin.add_staff_action(TERMINAL)


class ReasonForm(ActionForm):
    """A confirmation that takes a reason each time, also of what harms nothing."""

    def __init__(self, *args: Any, harms: bool, **kwargs: Any) -> None:
        super().__init__(*args, harms=True, **kwargs)


class DrainForm(ReasonForm):
    """How the host is emptied."""

    waits = forms.BooleanField(
        required=False, label="Wait for those that run", help_text="They move when they stop or sleep."
    )
    drops_memory = forms.BooleanField(
        required=False, label="Without their memory", help_text="What runs or sleeps starts anew from its disk."
    )


class GiveUpForm(ActionForm):
    """The confirmation that a host is lost: its name, typed."""

    confirm = forms.CharField(max_length=40, label="Name of the host", help_text="As a confirmation.")


def _state_set(act: Act, to: HostState) -> None:
    host_state_change(host_id=act.row.pk, to=to)


def _drain(act: Act) -> None:
    asked = DrainRequest(act.reason, memory=not act.data["drops_memory"], waits=act.data["waits"])
    host_drain(host=act.row, asked=asked, actor=act.actor)


def _give_up(act: Act) -> None:
    host_give_up(host_id=act.row.pk, confirm=act.data["confirm"])


def _may_become(to: HostState) -> Callable[[Host], bool]:
    return lambda row: row.state in ALLOWED[to]


def _cut_off(act: Act) -> None:
    cut_off(host_id=act.row.pk)


def _remove(act: Act) -> None:
    host_remove(host_id=act.row.pk)


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


@admin.register(Host)
class HostAdmin(StaffActionsMixin, HostColumns, ReadOnlyAdmin):
    staff_actions = (
        StaffAction(
            name="drain", label="Drain", call=_drain, icon="output",
            allowed=_may_become(HostState.DRAINING), form=DrainForm,
            will="No new machine is placed on the host, and its workspaces move to other hosts, two at once, with "
            "their files, snapshots and memory; their addresses change. Those that fit nowhere stay.",
        ),
        StaffAction(
            name="maintenance", label="Maintenance", call=partial(_state_set, to=HostState.MAINTENANCE),
            icon="build", allowed=_may_become(HostState.MAINTENANCE), harms=True,
            will="Nothing is started, woken or placed on the host. Machines that run stay as they are, until they are "
            "stopped.",
        ),
        StaffAction(
            name="activate", label="Activate", call=partial(_state_set, to=HostState.ACTIVE), icon="input",
            allowed=_may_become(HostState.ACTIVE), form=ReasonForm,
            will="Machines are placed and started on the host again. Workspaces that were lost with a host that was "
            "given up stay lost.",
        ),
        StaffAction(
            name="give_up", label="Give up", call=_give_up, icon="heart_broken", form=GiveUpForm, harms=True, most=1,
            allowed=lambda row: not row.has_lease and row.state != HostState.GONE,
            will="The host does not come back: its workspaces are lost, their owners are told, and nothing of them is "
            "charged from now on. It is refused while the host reports. Should it come back all the same, its machines "
            "are ended, and their disks are kept for seven days.",
        ),
        StaffAction(
            name="describe", label="Set labels and zone", call=_describe, icon="label", form=DescribeForm, most=1,
            initial=_described,
            will="New machines are placed by them. Those that the host has stay, also if they asked for other labels.",
        ),
        StaffAction(
            name="cut_off", label="Cut off", call=_cut_off, icon="link_off", harms=True,
            allowed=lambda row: bool(row.machine_id),
            will="The credentials of its machine end at once, as one that was taken over must not go on: it reports no "
            "more, and can be given up. Its workspaces run on there unseen, until the machine is off. Only a token for "
            "this host (make host-token HOST=...) lets a machine in again.",
        ),
        StaffAction(
            name="remove", label="Remove", call=_remove, icon="delete", harms=True, permission="delete",
            will="The host is no part of the platform any more, and its credentials end in seconds. It is "
            "refused while the host has workspaces. A machine that did not join, and whose vmhost runs, makes its "
            "row again.",
        ),
    )  # fmt: skip
