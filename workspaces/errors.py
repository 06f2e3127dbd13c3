"""Errors of the workspace routes, with the specification's codes (sections Errors, Workspace create)."""

from __future__ import annotations

from common.errors import Conflict, DomainError, FieldError, NotFound, Unauthorized


class MissingUserId(Unauthorized):
    """Authentication failed on create."""

    code = "MISSING_USER_ID"
    message = "Authentication failed: send valid client credentials."

    @property
    def name(self) -> str:
        return self.code


class InvalidNamespace(DomainError):
    code = "INVALID_NAMESPACE"
    status = 400
    message = "A namespace is a string of letters, digits and hyphens."


class InvalidNameLength(DomainError):
    code = "INVALID_NAME_LENGTH"
    status = 400
    message = "A name has at most 255 characters."


class InvalidImage(DomainError):
    code = "INVALID_IMAGE"
    status = 400
    message = "The image must be a non-empty string: a container image reference."


class InvalidConfig(FieldError):
    """Invalid config. `details` maps each invalid field to messages."""

    code = "INVALID_CONFIG"
    status = 400
    message = "The config is not valid."


class MissingRequiredEnv(DomainError):
    """Missing variables. `details.missing`: the keys that the catalog entry requires and `config.env` lacks."""

    code = "MISSING_REQUIRED_ENV"
    status = 400
    message = "The image needs more variables in config.env."


class SandboxLimitReached(DomainError):
    code = "SANDBOX_LIMIT_REACHED"
    status = 402
    message = "The account has as many workspaces as its plan allows."


class HostAlive(Conflict):
    """A host whose lease stands is not given up."""

    code = "host_is_alive"
    message = "The host reports. End its vmhost, or drain it."


class InvalidHostState(Conflict):
    """The host may not go from its state to that one."""

    code = "invalid_state"
    message = "The host is not in a state in which this is possible."


class SameHost(Conflict):
    code = "same_host"
    message = "The workspace is on this host."


class HostNotActive(Conflict):
    code = "host_not_active"
    message = "The host takes no new machines now."


class HostFull(Conflict):
    """No host has room for the workspace that is to move."""

    code = "host_full"
    message = "The host has no room for the workspace."


class HostUnfit(Conflict):
    """The machine cannot go on there. `details.differs`: what is another on both hosts."""

    code = "host_unfit"
    message = "The hosts differ: the workspace cannot go on there. Without its memory (`memory: false`) it may."


class StaticAddress(Conflict):
    code = "static_address"
    message = 'The workspace keeps its address (`static_network`), and another host has others: say `address: "new"`.'


class MoveCommitted(Conflict):
    code = "move_committed"
    message = "The workspace is on the new host already."


class SnapshotLimitReached(DomainError):
    code = "SNAPSHOT_LIMIT_REACHED"
    status = 402
    message = "The account has as many snapshots as its plan allows."


class SnapshotNotReady(Conflict):
    code = "snapshot_not_ready"
    message = "The snapshot is not complete."


class SnapshotIncompatible(Conflict):
    """The memory does not fit the host. `details.differs`: items `what`, `snapshot`, `host`."""

    code = "snapshot_incompatible"
    message = "The memory of the snapshot does not fit its host any more; with `memory` false its disk is used."


class ResourceNotAllowed(DomainError):
    code = "RESOURCE_NOT_ALLOWED"
    status = 403
    message = "The resources are more than the plan allows for one workspace."


class PoolLimitReached(DomainError):
    code = "POOL_LIMIT_REACHED"
    status = 402
    message = "The plan's pool of owned resources is full."


class RunningPoolReached(DomainError):
    code = "RUNNING_POOL_REACHED"
    status = 402
    message = "The plan's pool of running resources is full."


class EpochConflict(Conflict):
    """Kept files are not to take the place of what the workspace has now."""

    code = "epoch_conflict"
    message = "The workspace has newer files than those that the host has kept."


class NamespaceLimitReached(DomainError):
    code = "NAMESPACE_LIMIT_REACHED"
    status = 409
    message = "The namespace's limit is reached."


class CreateFailed(DomainError):
    code = "CREATE_FAILED"
    status = 500
    message = "The workspace could not be created."


class SlugTaken(Conflict):
    code = "slug_taken"
    message = "Another workspace of this account has this slug."


class OperationInProgress(Conflict):
    code = "operation_in_progress"
    message = "Another operation on this workspace is in progress."


class VmNotRunning(Conflict):
    code = "vm_not_running"
    message = "The workspace is not running."


class VmMissing(Conflict):
    code = "vm_missing"
    message = "There is no virtual machine; the workspace must be created again."


class InvalidResources(FieldError):
    code = "invalid_resources"
    status = 400
    message = "The resources are not valid."


class NoResources(DomainError):
    code = "no_resources"
    status = 400
    message = "Give at least one of cpus, memory_mb and disk_size_mb."


class IdleNotSupported(Conflict):
    code = "idle_not_supported"
    message = "This workspace cannot sleep when idle."


class StopFailed(DomainError):
    """Reinstall: nothing was reset."""

    code = "stop_failed"
    status = 502
    message = "The workspace could not be stopped; nothing was reset."


class OverlayDeleteFailed(DomainError):
    """Reinstall: nothing was deleted, and the workspace was started again."""

    code = "overlay_delete_failed"
    status = 502
    message = "The file system was not reset."


class RelaunchFailed(DomainError):
    """Reinstall: the file system was reset; `start` completes it."""

    code = "relaunch_failed"
    status = 502
    message = "The file system was reset, but the workspace was not started; call start to finish."


class RuntimeDisabled(Conflict):
    code = "runtime_disabled"
    message = "The runtime of this workspace is off: enable it first."


class SshKeyLimit(Conflict):
    code = "ssh_key_limit_exceeded"
    message = "The workspace has as many SSH keys as it can have."


class SshKeyNotFound(NotFound):
    code = "ssh_key_not_found"
    message = "The workspace has no such SSH key."


class WorkloadExists(Conflict):
    code = "workload_exists"
    message = "The workspace has a workload of this name; change that one."


class WorkloadLimit(Conflict):
    code = "workload_limit_exceeded"
    message = "The workspace has as many workloads as it can have."


class WorkloadDisabled(Conflict):
    code = "workload_disabled"
    message = "The workload is disabled; enable it first."


class WorkloadNotFound(NotFound):
    code = "workload_not_found"
    message = "The workspace has no such workload."


class PublicPortLimit(Conflict):
    code = "public_port_limit_exceeded"
    message = "The workspace has as many public ports as it can have."


class PublicPortNotFound(NotFound):
    code = "public_port_not_found"
    message = "The workspace has no such public port."


class PortNotPrivate(Conflict):
    code = "port_not_private"
    message = "The port is open to everyone; only a private port has links."


class PortLinkLimit(Conflict):
    code = "port_link_limit_exceeded"
    message = "The port has as many links as it can have."


class PortLinkNotFound(NotFound):
    code = "port_link_not_found"
    message = "The port has no such link."


class PathNotFound(NotFound):
    code = "path_not_found"
    message = "There is no such path in the workspace."


class PathInvalid(Conflict):
    code = "path_invalid"
    status = 400
    message = "The path cannot be used for this."


class PathExists(Conflict):
    code = "path_exists"
    message = "There is something at this path already."


class GuestDiskFull(Conflict):
    code = "guest_disk_full"
    message = "The workspace's disk is full; nothing was changed."


class CommandInvalid(DomainError):
    code = "command_invalid"
    status = 400
    message = "The command cannot be started."


class GuestKitOutdated(Conflict):
    """The machine has run since an upgrade of the platform, with a kit that cannot do this."""

    code = "guest_kit_outdated"
    message = "The workspace has run since before an upgrade of the platform: restart it to use this."


class OutputNotRead(DomainError):
    """Only within the event stream of a command, which has begun with 200."""

    code = "output_not_read"
    status = 408
    message = "The output was not read in time; the command has been ended."


class GuestUnreachable(DomainError):
    """The machine runs and its control channel does not answer."""

    code = "VM_UNAVAILABLE"
    status = 503
    message = "The workspace does not answer; try again."
