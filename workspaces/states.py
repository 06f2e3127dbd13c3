"""The states of a workspace and what may follow what.

    queued -> creating -> running                     create; also from failed by a retry
    queued, creating -> failed                        creation failed; the record stays
    stopped, lost -> starting -> running              start; forced also from failed, as a retry
    running, paused, sleeping -> stopping -> stopped  stop
    running -> restarting -> running                  restart
    running -> pausing -> paused -> resuming -> running
    running -> suspending -> sleeping -> waking -> running
    running, stopped -> resizing -> what it was       resources applied, overlay resized
    any with a machine -> reinstalling -> running     reinstall; stopped where it did not start again
    any at rest -> stopping -> destroyed              destroy; the record stays
    running, paused -> stopped | lost                 the VM ended, or vanished from its host
    any -> deleting -> (row gone)                     delete
A failed operation leads to the state that the machine is found in (`host.outcomes`).

`transitions.transition` is the only way between them: one guarded UPDATE that names the states it may leave.
"""

from __future__ import annotations

from django.db import models


class Status(models.TextChoices):
    """`info.status` (wire contract, section 3)."""

    QUEUED = "queued"
    CREATING = "creating"
    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    SLEEPING = "sleeping"
    FAILED = "failed"
    DESTROYED = "destroyed"
    DELETING = "deleting"
    LOST = "lost"
    STARTING = "starting"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    PAUSING = "pausing"
    RESUMING = "resuming"
    SUSPENDING = "suspending"
    WAKING = "waking"
    REINSTALLING = "reinstalling"
    RESIZING = "resizing"


class Provisioning(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"


class ProvisioningPhase(models.TextChoices):
    QUEUED = "queued"
    PULLING_IMAGE = "pulling_image"
    PREPARING_DISK = "preparing_disk"
    STARTING = "starting"
    INITIALIZING = "initializing"
    READY = "ready"
    FAILED = "failed"
    DELETING = "deleting"


# States in which the VM's process may be there.
HOLDS_PROCESS = frozenset(
    {
        Status.RUNNING,
        Status.PAUSED,
        Status.STARTING,
        Status.STOPPING,
        Status.RESTARTING,
        Status.PAUSING,
        Status.RESUMING,
        Status.SUSPENDING,
        Status.RESIZING,
    }
)
# States that use or are about to use the running pool.
USES_RUNNING_POOL = HOLDS_PROCESS | {
    Status.QUEUED,
    Status.CREATING,
    Status.WAKING,
    Status.REINSTALLING,
}
# States that own nothing any more.
OWNS_NOTHING = frozenset({Status.DESTROYED})
# A power operation goes on.
_POWER = frozenset(
    {
        Status.STARTING,
        Status.STOPPING,
        Status.RESTARTING,
        Status.PAUSING,
        Status.RESUMING,
        Status.SUSPENDING,
        Status.WAKING,
        Status.REINSTALLING,
        Status.RESIZING,
    }
)
# States that something is being done in; their end is an operation's end.
TRANSITIONAL = _POWER | {Status.QUEUED, Status.CREATING, Status.DELETING}
CREATING = frozenset({Status.QUEUED, Status.CREATING})
ANY = frozenset(Status)

# States at rest with a machine on a host.
HAS_MACHINE = frozenset({Status.RUNNING, Status.STOPPED, Status.PAUSED, Status.SLEEPING, Status.LOST})
AT_REST = ANY - TRANSITIONAL

# What each state may follow. `deleting` may follow every state and nothing follows it.
ALLOWED: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.FAILED}),
    Status.CREATING: frozenset({Status.QUEUED, Status.CREATING}),
    # After a destroy that failed, too: what was never made cannot be started, only created again.
    Status.FAILED: frozenset({Status.QUEUED, Status.CREATING, Status.STOPPING}),
    Status.STARTING: frozenset({Status.STOPPED, Status.LOST, Status.STARTING, Status.RUNNING}),
    Status.STOPPING: frozenset(AT_REST - {Status.DESTROYED}),
    Status.RESTARTING: frozenset({Status.RUNNING}),
    Status.PAUSING: frozenset({Status.RUNNING}),
    Status.RESUMING: frozenset({Status.PAUSED}),
    Status.SUSPENDING: frozenset({Status.RUNNING}),
    Status.WAKING: frozenset({Status.SLEEPING}),
    Status.RESIZING: frozenset({Status.RUNNING, Status.STOPPED}),
    Status.REINSTALLING: HAS_MACHINE,
    # After an operation, and where reconcile finds that the machine is otherwise than the row says.
    Status.RUNNING: _POWER | {Status.CREATING, Status.LOST, Status.STOPPED, Status.SLEEPING},
    Status.STOPPED: _POWER | {Status.RUNNING, Status.LOST, Status.PAUSED, Status.SLEEPING},
    Status.PAUSED: _POWER,
    Status.SLEEPING: _POWER | {Status.RUNNING, Status.PAUSED, Status.LOST},
    Status.LOST: _POWER | {Status.RUNNING, Status.PAUSED, Status.SLEEPING},
    Status.DESTROYED: frozenset({Status.STOPPING}),
    Status.DELETING: ANY,
}
