"""Terminals of plain workspaces for staff. Here, as terminals are those of `sandboxes`, which is above `workspaces`."""

from __future__ import annotations

from common.errors import Conflict
from sandboxes.services import NOT_WOKEN
from sandboxes.staff_actions import MINUTES, open_terminal
from sandboxes.tokens import STAFF_PERMISSION
from staff.actions import Act, StaffAction
from workspaces.models.workspace import Kind
from workspaces.states import Status


def _open_terminal(act: Act) -> str:
    if act.row.kind == Kind.SANDBOX:
        raise Conflict("It is the machine of a sandbox: its terminals are opened from the sandbox's page.")
    return open_terminal(act, act.row)


TERMINAL = StaffAction(
    name="terminal",
    label="Open a terminal",
    call=_open_terminal,
    icon="terminal",
    harms=True,
    most=1,
    permission=STAFF_PERMISSION,
    leads_away=True,
    allowed=lambda row: row.kind == Kind.WORKSPACE and row.status == Status.RUNNING,
    will="This opens a terminal with all rights inside the machine, which does not fall asleep while it is open. "
    f"{NOT_WOKEN} The activity of the workspace, which its owner can read, will name you. The address is valid for "
    f"{MINUTES} minutes.",
)
