"""The states of a workspace and the transitions between them.

    queued -> creating -> running                     create; also from failed by a retry
    queued, creating -> failed                        creation failed; the record stays
    creating -> stopped                               create of a machine that is not to be started
    stopped, lost -> starting -> running              start; forced also from failed, as a retry
    running, paused, sleeping -> stopping -> stopped  stop
    running -> restarting -> running                  restart
    running -> pausing -> paused -> resuming -> running
    running -> suspending -> sleeping -> waking -> running
    running, stopped -> resizing -> as before         resources applied, overlay resized
    running, paused, sleeping, stopped -> restoring -> running    restore of a snapshot; stopped if it did not start
    running, sleeping, stopped -> moving -> sleeping, stopped     move to another host; waking or starting if it ran
    any with a machine -> reinstalling -> running     reinstall; stopped if it did not start again
    any at rest -> stopping -> destroyed              destroy; the record stays
    running, paused -> stopped | lost                 the VM ended, or disappeared from its host
    any with a machine -> lost                        its host was given up
    any -> deleting -> (row removed)                  delete

A failed operation leads to the state that the machine is in (`host.outcomes`).

`transitions.transition` is the only way between them: one guarded UPDATE that names the states it may leave.
"""

from __future__ import annotations

from django.db import models


class Status(models.TextChoices):
    """The status of a workspace: `info.status` (specification, Workspace power and lifecycle).

    At rest: `running`; `stopped` (the disk remains); `paused` (in memory, without CPU);
    `sleeping` (memory saved on the host's disk, no process); `failed` (the creation failed, nothing exists);
    `destroyed` (machine and disk removed, the row remains); `lost` (the machine disappeared from its host). All others
    (`queued`: not begun by its host) are transitional: an operation is in flight, and its outcome is the next status.
    """

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
    RESTORING = "restoring"
    MOVING = "moving"


# The error of a workspace that was lost with a host that staff gave up.
HOST_LOST = "host_lost"
# Why a machine ended that the platform shut down with its host (`restart_info.last_exit_reason`).
HOST_DOWN = "host_down"


class Provisioning(models.TextChoices):
    """Progress of the creation (specification, Workspace provisioning: `state`). Once `ready`, it stays so."""

    QUEUED = "queued"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"


class ProvisioningPhase(models.TextChoices):
    """Phase of the creation (specification, Workspace provisioning: `phase`). `deleting`: a delete ends it."""

    QUEUED = "queued"
    PULLING_IMAGE = "pulling_image"
    PREPARING_DISK = "preparing_disk"
    STARTING = "starting"
    INITIALIZING = "initializing"
    READY = "ready"
    FAILED = "failed"
    DELETING = "deleting"


# The VM's process may exist.
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
# Counted in the running pool of the plan.
USES_RUNNING_POOL = HOLDS_PROCESS | {
    Status.QUEUED,
    Status.CREATING,
    Status.WAKING,
    Status.REINSTALLING,
    Status.RESTORING,
}
# Not counted in the pool of owned resources.
OWNS_NOTHING = frozenset({Status.DESTROYED})
# Nothing of it lies on a host.
NO_MACHINE = OWNS_NOTHING | {Status.FAILED}
# A power operation is in flight.
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
        Status.RESTORING,
        Status.MOVING,
    }
)
# Left only by the end of an operation.
TRANSITIONAL = _POWER | {Status.QUEUED, Status.CREATING, Status.DELETING}
CREATING = frozenset({Status.QUEUED, Status.CREATING})
ANY = frozenset(Status)

# At rest, with a machine on a host.
HAS_MACHINE = frozenset({Status.RUNNING, Status.STOPPED, Status.PAUSED, Status.SLEEPING, Status.LOST})
# A snapshot can be made of it, or loaded in its place.
HAS_STATE = frozenset({Status.RUNNING, Status.STOPPED, Status.PAUSED, Status.SLEEPING})
# It can be moved to another host.
MOVABLE = frozenset({Status.RUNNING, Status.STOPPED, Status.SLEEPING})
AT_REST = ANY - TRANSITIONAL

# For each state, the states it may be entered from. `deleting` may follow every state; no state follows it.
ALLOWED: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.FAILED}),
    Status.CREATING: frozenset({Status.QUEUED, Status.CREATING}),
    # Also after a destroy that failed: without a machine it can only be created again.
    Status.FAILED: frozenset({Status.QUEUED, Status.CREATING, Status.STOPPING}),
    Status.STARTING: frozenset({Status.STOPPED, Status.LOST, Status.STARTING, Status.RUNNING, Status.MOVING}),
    Status.STOPPING: frozenset(AT_REST - {Status.DESTROYED}),
    Status.RESTARTING: frozenset({Status.RUNNING}),
    Status.PAUSING: frozenset({Status.RUNNING}),
    Status.RESUMING: frozenset({Status.PAUSED}),
    Status.SUSPENDING: frozenset({Status.RUNNING}),
    Status.WAKING: frozenset({Status.SLEEPING, Status.MOVING}),
    Status.RESIZING: frozenset({Status.RUNNING, Status.STOPPED}),
    Status.REINSTALLING: HAS_MACHINE,
    Status.RESTORING: HAS_STATE,
    Status.MOVING: MOVABLE,
    # After an operation, or when reconcile finds the machine in another state than its row.
    Status.RUNNING: _POWER | {Status.CREATING, Status.LOST, Status.STOPPED, Status.SLEEPING},
    Status.STOPPED: _POWER | {Status.CREATING, Status.RUNNING, Status.LOST, Status.PAUSED, Status.SLEEPING},
    Status.PAUSED: _POWER,
    Status.SLEEPING: _POWER | {Status.RUNNING, Status.PAUSED, Status.LOST},
    Status.LOST: _POWER | {Status.RUNNING, Status.PAUSED, Status.SLEEPING, Status.STOPPED},
    Status.DESTROYED: frozenset({Status.STOPPING}),
    Status.DELETING: ANY,
}
