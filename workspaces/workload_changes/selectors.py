"""The workloads of a workspace: what is saved of them, and what its guest says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from common.errors import DomainError
from vmbackend.backend import guest_pool
from vmbackend.guest.workloads import WorkloadState, list_workloads
from workspaces.errors import GuestKitOutdated, WorkloadNotFound
from workspaces.guests import address_of, guest_errors
from workspaces.models import Workspace
from workspaces.states import Status

LIST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WorkloadFound:
    """`item`: as saved; empty where only the guest has it, such as the desktop's. `state`: None where the guest does
    not have it, or does not run.
    """

    name: str
    item: dict[str, Any]
    state: WorkloadState | None


def workloads_of(workspace: Workspace) -> list[WorkloadFound]:
    """Those that are saved, in their order, then the others of the guest. Raises GuestUnreachable, GuestKitOutdated."""
    states = guest_states(workspace)
    saved = [WorkloadFound(item["name"], item, states.pop(item["name"], None)) for item in workspace.workloads]
    return saved + [WorkloadFound(name, {}, state) for name, state in states.items()]


def find_workload(workspace: Workspace, name: str) -> WorkloadFound:
    """Raises WorkloadNotFound, GuestUnreachable, GuestKitOutdated."""
    for found in workloads_of(workspace):
        if found.name == name:
            return found
    raise WorkloadNotFound


def find_removable(workspace: Workspace, name: str) -> WorkloadFound:
    """As `find_workload`; of a guest whose kit cannot list them, what is saved. Raises GuestKitOutdated: nothing is."""
    try:
        return find_workload(workspace, name)
    except GuestKitOutdated:
        saved = [item for item in workspace.workloads if item["name"] == name]
        if not saved:
            raise
        return WorkloadFound(name, saved[0], None)


def state_after_change(workspace: Workspace, name: str) -> WorkloadState | None:
    """None also where the guest does not answer any more: what was changed is no error then."""
    try:
        return guest_states(workspace).get(name)
    except DomainError:
        return None


def guest_states(workspace: Workspace) -> dict[str, WorkloadState]:
    """By name; empty unless the workspace runs. Raises GuestUnreachable, GuestKitOutdated."""
    if workspace.status != Status.RUNNING:
        return {}
    with guest_errors():
        return {each.name: each for each in guest_pool().call(address_of(workspace), list_workloads, LIST_SECONDS)}
