"""Staff actions on sandboxes in the admin, by the services that the API calls."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth import get_user_model

from sandboxes import services
from sandboxes.models import Sandbox
from sandboxes.tokens import STAFF_PERMISSION
from staff.actions import Act, StaffAction
from workspaces.models import Workspace
from workspaces.power import RUNS, STARTABLE, STOPPABLE
from workspaces.states import Status

MINUTES = int(services.STAFF_TOKEN_LIFE.total_seconds() // 60)


def _by(service: Callable[..., object]) -> Callable[[Act], object]:
    return lambda act: service(workspace=act.row.workspace, actor=act.actor, origin=act.origin)


def _in(states: frozenset[Status]) -> Callable[[Sandbox], bool]:
    return lambda row: row.workspace.status in states


def open_terminal(act: Act, workspace: Workspace) -> str:
    """Return the address of the terminal page, with a token of this user's own."""
    user = get_user_model().objects.get(pk=act.user_id or 0)
    token = services.staff_token_create(workspace=workspace, user=user, actor=act.actor, origin=act.origin)
    return services.staff_terminal_url(workspace, token)


def _open_terminal(act: Act) -> str:
    return open_terminal(act, act.row.workspace)


ACTIONS = (
    StaffAction(
        name="terminal", label="Open a terminal", call=_open_terminal, icon="terminal", harms=True, most=1,
        permission=STAFF_PERMISSION, leads_away=True,
        allowed=lambda row: row.workspace.status != Status.DELETING,
        will="This opens a terminal with all rights inside the machine. A machine that sleeps is woken. The activity "
        f"of the machine, which its owner can read, will name you. The address is valid for {MINUTES} minutes.",
    ),
    StaffAction(
        name="start", label="Start", call=_by(services.sandbox_start), icon="play_arrow", allowed=_in(STARTABLE),
        will="The machine is started; a paused one is resumed and a sleeping one woken.",
    ),
    StaffAction(
        name="stop", label="Stop", call=_by(services.sandbox_stop), icon="stop", allowed=_in(STOPPABLE), harms=True,
        will="The machine is shut down, and stays off. Its disk stays; the content of its memory is lost.",
    ),
    StaffAction(
        name="restart", label="Restart", call=_by(services.sandbox_restart), icon="restart_alt", allowed=_in(RUNS),
        harms=True,
        will="The machine is shut down and started again. What is in its memory is lost.",
    ),
    StaffAction(
        name="end_token", label="End the token", call=_by(services.token_regenerate), icon="key_off", harms=True,
        will="The token is refused from now on, and sockets that it opened end. The new token is shown to no user: the "
        "owner regenerates it.",
    ),
    StaffAction(
        name="remove", label="Delete", call=_by(services.sandbox_delete), icon="delete_forever", harms=True,
        permission="delete",
        will="The sandbox is deleted with its machine, its disk and all data. This cannot be undone.",
    ),
)  # fmt: skip
