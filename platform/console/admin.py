"""The admin of hosts, which write their rows themselves. Staff decide which of them take new machines.

Here, as `vmbackend` is below the apps with audit entries. Also what staff do with rows of an app by an app above it.
"""

from __future__ import annotations

from django.contrib import admin

from console.terminals import TERMINAL
from staff.action_admin import StaffActionsMixin
from staff.actions import Act, StaffAction
from staff.parts.bases import ReadOnlyAdmin
from vmbackend import services
from vmbackend.models import Host
from workspaces.admin import WorkspaceAdmin
from workspaces.host_columns import HostColumns

WorkspaceAdmin.add_staff_action(TERMINAL)


def _drain(act: Act) -> None:
    services.host_update(host_id=act.row.pk, accepts_new=False)


def _undrain(act: Act) -> None:
    services.host_update(host_id=act.row.pk, accepts_new=True)


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
            name="remove", label="Delete", call=_delete, icon="delete", harms=True, permission="delete",
            will="The row of a host that is gone is deleted; it is refused while the host has workspaces. A host "
            "whose vmhost runs makes its row again.",
        ),
    )  # fmt: skip
