"""Actions of staff on a workspace in the admin. They call the services that the API calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staff.actions import Act, StaffAction
from workspaces.crud.services import provisioning_retry, workspace_delete
from workspaces.lifecycle.services import workspace_destroy
from workspaces.models import Workspace
from workspaces.power import (
    RUNS,
    STARTABLE,
    STOPPABLE,
    workspace_pause,
    workspace_restart,
    workspace_resume,
    workspace_sleep,
    workspace_start,
    workspace_stop,
)
from workspaces.reinstall import workspace_reinstall
from workspaces.states import AT_REST, HAS_MACHINE, Status

RESUMABLE = frozenset({Status.PAUSED, Status.SLEEPING})


def _by(service: Callable[..., object]) -> Callable[[Act], object]:
    return lambda act: service(workspace=act.row, actor=act.actor)


def _in(states: frozenset[Status]) -> Callable[[Workspace], bool]:
    return lambda row: row.status in states


def _action(
    name: str, label: str, service: Callable[..., object], states: frozenset[Status], **more: Any
) -> StaffAction:
    return StaffAction(name=name, label=label, call=_by(service), allowed=_in(states), **more)


ACTIONS = (
    _action(
        "start", "Start", workspace_start, STARTABLE, icon="play_arrow",
        will="The machine is started; a paused one is resumed and a sleeping one woken. It counts against the limits "
        "and credits of its owner.",
    ),
    _action(
        "stop", "Stop", workspace_stop, STOPPABLE, icon="stop", harms=True,
        will="The machine is shut down, and stays off. Its disk stays; its memory is lost.",
    ),
    _action(
        "restart", "Restart", workspace_restart, RUNS, icon="restart_alt", harms=True,
        will="The machine is shut down and started again. Its memory is lost; saved sizes are applied.",
    ),
    _action(
        "sleep", "Put to sleep", workspace_sleep, RUNS, icon="bedtime",
        will="The machine's memory is saved to the host's disk, and its process ends. The next request wakes it.",
    ),
    _action(
        "pause", "Pause", workspace_pause, RUNS, icon="pause", harms=True,
        will="The machine keeps its memory and uses no CPU, until it is resumed. Its services do not answer.",
    ),
    _action(
        "resume", "Resume or wake", workspace_resume, RESUMABLE, icon="resume",
        will="A paused machine goes on; a sleeping one is woken with its memory.",
    ),
    _action(
        "retry", "Retry the creation", provisioning_retry, frozenset({Status.FAILED}), icon="replay",
        will="The failed creation is tried again, on any host with room.",
    ),
    _action(
        "reinstall", "Reinstall", workspace_reinstall, HAS_MACHINE, icon="settings_backup_restore", harms=True,
        permission="delete",
        will="The file system is reset to the image: everything that was written in the machine is lost. It cannot be "
        "undone.",
    ),
    _action(
        "destroy_machine", "Destroy the machine", workspace_destroy, AT_REST - {Status.DESTROYED, Status.FAILED},
        icon="delete", harms=True, permission="delete",
        will="The machine and its disk are removed with all data; the record stays. It cannot be undone.",
    ),
    _action(
        "remove", "Delete with all data", workspace_delete, frozenset(Status) - {Status.DELETING},
        icon="delete_forever", harms=True, permission="delete",
        will="The machine, its disk and the record are deleted with all data. It cannot be undone.",
    ),
)  # fmt: skip
