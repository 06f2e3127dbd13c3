"""The five statuses of a sandbox, by what its caller can do (wire contract, section 4)."""

from __future__ import annotations

from django.db import models

from workspaces.states import Status


class SandboxStatus(models.TextChoices):
    """`active`: it runs. `suspended`: asleep or paused; a request to its address wakes one that sleeps. `creating`: it
    is being made, started or changed; wait. `stopped`: start it. `failed`: it was not made, or its machine is missing.
    """

    ACTIVE = "active"
    STOPPED = "stopped"
    SUSPENDED = "suspended"
    CREATING = "creating"
    FAILED = "failed"


OF_WORKSPACE: dict[Status, SandboxStatus] = {
    Status.RUNNING: SandboxStatus.ACTIVE,
    **dict.fromkeys((Status.STOPPED, Status.STOPPING, Status.DELETING), SandboxStatus.STOPPED),
    **dict.fromkeys(
        (
            Status.SLEEPING,
            Status.SUSPENDING,
            Status.WAKING,
            Status.PAUSED,
            Status.PAUSING,
            Status.RESUMING,
            Status.MOVING,
        ),
        SandboxStatus.SUSPENDED,
    ),
    **dict.fromkeys(
        (
            Status.QUEUED,
            Status.CREATING,
            Status.STARTING,
            Status.RESTARTING,
            Status.REINSTALLING,
            Status.RESTORING,
            Status.RESIZING,
        ),
        SandboxStatus.CREATING,
    ),
    **dict.fromkeys((Status.FAILED, Status.DESTROYED, Status.LOST), SandboxStatus.FAILED),
}


def workspace_statuses(status: SandboxStatus) -> list[Status]:
    """Return the statuses of the machine that are shown as this one."""
    return [machine for machine, shown in OF_WORKSPACE.items() if shown is status]
