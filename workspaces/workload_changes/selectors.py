"""Workloads of a workspace: the saved ones, and their states as its guest reports them."""

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
    """A workload. `item`: as saved; empty if only the guest has it, as the desktop's. `state`: None if the guest does
    not have it, or does not run.
    """

    name: str
    item: dict[str, Any]
    state: WorkloadState | None


def workloads_of(workspace: Workspace) -> list[WorkloadFound]:
    """Return the saved workloads in their order, then the others of the guest.

    Raise GuestUnreachable or GuestKitOutdated.
    """
    states = guest_states(workspace)
    saved = [WorkloadFound(item["name"], item, states.pop(item["name"], None)) for item in workspace.workloads]
    return saved + [WorkloadFound(name, {}, state) for name, state in states.items()]


def find_workload(workspace: Workspace, name: str) -> WorkloadFound:
    """Return a workload by name. Raise WorkloadNotFound, GuestUnreachable, GuestKitOutdated."""
    for found in workloads_of(workspace):
        if found.name == name:
            return found
    raise WorkloadNotFound


def find_removable(workspace: Workspace, name: str) -> WorkloadFound:
    """Do what `find_workload` does; if the guest's kit cannot list workloads, return the saved one. Raise
    GuestKitOutdated if there is none.
    """
    try:
        return find_workload(workspace, name)
    except GuestKitOutdated:
        saved = [item for item in workspace.workloads if item["name"] == name]
        if not saved:
            raise
        return WorkloadFound(name, saved[0], None)


def state_after_change(workspace: Workspace, name: str) -> WorkloadState | None:
    """Return the state of a workload. Return None also if the guest does not answer any more: the change itself has
    succeeded.
    """
    try:
        return guest_states(workspace).get(name)
    except DomainError:
        return None


def guest_states(workspace: Workspace) -> dict[str, WorkloadState]:
    """Return the states by name; empty unless the workspace runs. Raise GuestUnreachable, GuestKitOutdated."""
    if workspace.status != Status.RUNNING:
        return {}
    with guest_errors():
        return {each.name: each for each in guest_pool().call(address_of(workspace), list_workloads, LIST_SECONDS)}
