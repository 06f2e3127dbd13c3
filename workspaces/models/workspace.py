"""The workspace row (specification, Workspace object, create config, lifecycle, provisioning)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Account
from common.ids import new_id
from common.prefix_keys import PrefixKey
from common.secrets_at_rest import DataJSONField
from namespaces.models import Namespace
from vmbackend.host_states import UNREACHABLE
from vmbackend.models import Host, ShownHost
from workspaces.states import HOLDS_PROCESS, Provisioning, ProvisioningPhase, Status

APPLIED = ("applied_cpu_millis", "applied_memory_mb", "applied_disk_size_mb")
SIZES = ("cpu_millis", "memory_mb", "disk_size_mb", *APPLIED)
# The part of the network policy that the machine's host enforces; the edge enforces the rest.
POLICY_COLUMNS = ("allow_internet", "egress", "egress_ports", "ingress_ports")
# Annotations that `host_away.with_host` makes, as the fields of ShownHost.
JOINED = ("joined_host", "joined_host_state", "joined_host_since")
# Times at which the sweep has something to do.
DUE_COLUMNS = ("ttl_expires_at", "idle_due_at", "memory_expires_at", "restart_due_at")


def new_workspace_id() -> str:
    return new_id("ws")


class Kind(models.TextChoices):
    """The product that the machine belongs to: a workspace, or a sandbox on the same machinery."""

    WORKSPACE = "workspace"
    SANDBOX = "sandbox"


class Mode(models.TextChoices):
    """A temporary workspace has a TTL, a permanent one restart and idle policies (specification, Lifecycle object)."""

    PERMANENT = "permanent"
    TEMPORARY = "temporary"


class TtlAction(models.TextChoices):
    """Action when the TTL expires. Only `remove` has an effect on a workspace that does not run."""

    STOP = "stop"
    PAUSE = "pause"
    REMOVE = "remove"


class RestartPolicy(models.TextChoices):
    """Policy when a machine that ended is started again (specification, Lifecycle object); `host.restarts`
    applies it.
    """

    NO = "no"
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    UNLESS_STOPPED = "unless-stopped"


class FailureReason(NamedTuple):
    """Reason why an operation or a creation failed: an error code of the API, and a sentence."""

    code: str
    message: str


class Resources(NamedTuple):
    """Sizes of a machine; memory and disk in MiB."""

    cpus: int | float
    memory_mb: int
    disk_size_mb: int


def whole_or_fraction(cpu_millis: int) -> int | float:
    """Return CPUs: whole ones as 2, fractions as 0.5."""
    return cpu_millis / 1000 if cpu_millis % 1000 else cpu_millis // 1000


class Workspace(models.Model):
    """One micro-VM: its desired configuration and its last known state (specification, Workspace object).

    Written by `workspaces.rows` and, for `status`, by `transitions.transition` only. Memory and disk sizes are MiB,
    durations seconds. `ready` is true only in `running` and once provisioned, in one commit. Columns `applied_*` are
    the machine's sizes. If they differ from the desired sizes, the change applies at the next start. The row holds its
    host and address until it is destroyed or deleted.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_workspace_id, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="workspaces")
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="workspaces")
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.WORKSPACE)
    name = models.CharField(max_length=255)
    slug = models.CharField(max_length=128, null=True, blank=True)
    logo = models.CharField(max_length=2048, null=True, blank=True)
    type = models.CharField(max_length=64, blank=True, default="")
    metadata = models.JSONField(default=dict, blank=True)

    # Image. The first pull pins the digest, so that a moved tag never changes an existing workspace.
    image = models.CharField(max_length=512)
    image_digest = models.CharField(max_length=80, blank=True, default="")
    preset = models.CharField(max_length=120, blank=True, default="")
    # A copy of the catalog entry at its creation (`images.catalog_snapshots`); never changed.
    catalog_snapshot = models.JSONField(null=True, blank=True)
    env: models.Field[Any, Any] = DataJSONField(default=dict, blank=True)
    cmd = models.JSONField(null=True, blank=True)
    workloads: models.Field[Any, Any] = DataJSONField(default=list, blank=True)
    wait_for_init = models.BooleanField(default=False)
    desktop_enabled = models.BooleanField(default=False)
    macos = models.JSONField(null=True, blank=True)
    proxy_assignment_id = models.BigIntegerField(null=True, blank=True)

    # The snapshot that its disk was made from, also once that is deleted.
    source_snapshot_id = models.CharField(max_length=24, null=True, blank=True)

    # Resources. CPUs in thousandths, so that sums over a pool are exact.
    cpu_millis = models.PositiveIntegerField()
    memory_mb = models.PositiveIntegerField()
    disk_size_mb = models.PositiveIntegerField()
    # The sizes with which the machine was last started. If the sizes above differ, they apply at the next start.
    applied_cpu_millis = models.PositiveIntegerField()
    applied_memory_mb = models.PositiveIntegerField()
    applied_disk_size_mb = models.PositiveIntegerField()

    # Placement, and how the platform reaches the guest: its control port and pinned SSH host key.
    host = models.ForeignKey(Host, null=True, on_delete=models.PROTECT, related_name="workspaces")
    # The number of its assignment to a host, which each assignment raises. Machines carry it (`vmbackend.orphans`).
    epoch = models.PositiveBigIntegerField(default=1, db_default=1)
    ip = models.GenericIPAddressField(protocol="IPv4", null=True)
    static_network = models.BooleanField(default=False)
    # The `placement` of its create, as `workspaces.crud.places` reads it.
    placement = models.JSONField(default=dict, blank=True)
    ssh_host_key = models.TextField(blank=True, default="")
    control_port = models.PositiveIntegerField(default=0)

    # Network policy
    allow_internet = models.BooleanField(default=True)
    public_access = models.BooleanField(default=False)
    ingress_ports = models.JSONField(default=list, blank=True)
    egress_ports = models.JSONField(default=list, blank=True)
    egress = models.JSONField(default=list, blank=True)
    ingress = models.JSONField(default=list, blank=True)
    # Whether the machine's host has not applied the policy yet.
    network_stale = models.BooleanField(default=False)
    # The number of rows of PublicPort.
    published_ports = models.PositiveSmallIntegerField(default=0)
    # The data plane (`workspaces/runtime`): its tokens name the epoch that they were made in.
    runtime_enabled = models.BooleanField(default=False)
    runtime_epoch = models.PositiveIntegerField(default=0)

    ssh_enabled = models.BooleanField(default=False)
    ssh_keys = models.JSONField(default=list, blank=True)
    # Whether the guest has not applied the two above yet.
    ssh_stale = models.BooleanField(default=False)
    # Names of workloads whose changes the guest has not applied yet.
    stale_workloads = models.JSONField(default=list, blank=True)
    # Not columns: whether an earlier change was already marked when this request wrote its own. The process that makes
    # the earlier one may die after a late write into the guest, so the mark is left for the host.
    ssh_was_stale = False
    workload_was_stale = False

    # Power
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.QUEUED)
    ready = models.BooleanField(default=False)
    user_requested_stop = models.BooleanField(default=False)
    started_at = models.DateTimeField(null=True)
    # How the present or last process began, as `vmbackend.power.StartedFrom` names it.
    started_from = models.CharField(max_length=16, default="boot")
    # Since when the guest's services have not answered; only in `running`, and only after a minute of silence.
    unresponsive_since = models.DateTimeField(null=True)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_message = models.TextField(blank=True, default="")

    # Lifecycle
    mode = models.CharField(max_length=16, choices=Mode.choices, default=Mode.TEMPORARY)
    ttl_seconds = models.PositiveIntegerField(null=True)
    ttl_action = models.CharField(max_length=16, choices=TtlAction.choices, default=TtlAction.STOP)
    ttl_expires_at = models.DateTimeField(null=True)
    # Seconds between the setting of `ttl_expires_at` and that time: a ping may give another length, once.
    ttl_length = models.PositiveIntegerField(null=True)
    remove_on_exit = models.BooleanField(default=False)
    restart_policy = models.CharField(max_length=16, choices=RestartPolicy.choices, default=RestartPolicy.NO)
    max_restarts = models.PositiveIntegerField(default=0)
    restart_count = models.PositiveIntegerField(default=0)
    # About the last run that ended.
    last_exit_code = models.IntegerField(null=True)
    last_exit_reason = models.CharField(max_length=32, blank=True, default="")
    last_restart_at = models.DateTimeField(null=True)
    restart_history = models.JSONField(default=list, blank=True)
    restart_due_at = models.DateTimeField(null=True)
    keep_logs = models.BooleanField(default=True)

    # Idle policy, in seconds (0: off): sleep when unused, then drop the saved memory.
    suspend_after = models.PositiveIntegerField(default=0)
    stop_after = models.PositiveIntegerField(default=0)
    idle_due_at = models.DateTimeField(null=True)
    memory_expires_at = models.DateTimeField(null=True)

    # Provisioning
    provisioning_state = models.CharField(max_length=16, choices=Provisioning.choices, default=Provisioning.QUEUED)
    provisioning_phase = models.CharField(
        max_length=24, choices=ProvisioningPhase.choices, default=ProvisioningPhase.QUEUED
    )
    provisioning_progress = models.PositiveSmallIntegerField(default=0)
    provisioning_message = models.CharField(max_length=500, blank=True, default="")
    provisioning_error_code = models.CharField(max_length=64, blank=True, default="")
    provisioning_error = models.TextField(blank=True, default="")
    provisioning_attempts = models.PositiveIntegerField(default=0)
    provisioning_updated_at = models.DateTimeField(default=timezone.now)
    provisioning_completed_at = models.DateTimeField(null=True)

    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["account", "slug"], name="workspace_slug_once_per_account"),
            models.UniqueConstraint(fields=["host", "ip"], name="workspace_ip_once_per_host"),
            # The commit that makes a workspace ready completes its provisioning.
            models.CheckConstraint(
                condition=Q(ready=False) | Q(provisioning_state=Provisioning.READY),
                name="ready_means_provisioned",
            ),
        ]
        indexes = [
            models.Index(fields=["account", "-created_at", "-id"], name="workspace_list"),
            models.Index(
                fields=["account", "-created_at", "-id"], condition=Q(kind=Kind.SANDBOX), name="workspace_sandbox_list"
            ),
            # Covers the sums of both pools.
            models.Index(
                fields=["account", "status", "cpu_millis", "memory_mb", "disk_size_mb", *APPLIED],
                name="workspace_pools",
            ),
            models.Index(fields=["host", "status", "applied_memory_mb"], name="workspace_host"),
            # For the admin: counts by status, and lists of one status, newest first.
            models.Index(fields=["status", "-id"], name="workspace_status"),
            models.Index(fields=["mode", "-id"], name="workspace_by_mode"),
            models.Index(fields=["host", "-id"], name="workspace_on_host"),
            # For searches in the admin.
            models.Index(PrefixKey("name"), "id", name="workspace_name_begins"),
            models.Index(PrefixKey("slug"), "id", name="workspace_slug_begins"),
            models.Index(fields=["ip"], name="workspace_by_ip"),
            models.Index(
                fields=["source_snapshot_id"],
                condition=Q(source_snapshot_id__isnull=False),
                name="workspace_of_snapshot",
            ),
            # Partial: rows for which the sweep has nothing to do are not in the index.
            *(
                models.Index(fields=[column], condition=Q(**{f"{column}__isnull": False}), name=f"workspace_{column}")
                for column in DUE_COLUMNS
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def namespace_slug(self) -> str:
        """Return the namespace's slug, without a query if `selectors` joined it in."""
        joined: str | None = self.__dict__.get("joined_namespace")
        return joined if joined is not None else self.namespace.slug

    @property
    def shown_host(self) -> ShownHost:
        """Return its host as users see it, without a query if `host_away.with_host` joined it in."""
        if JOINED[0] in self.__dict__:
            return ShownHost(*(self.__dict__[name] for name in JOINED))
        return self.host.shown if self.host else ShownHost()

    def take_joined(self, values: list[Any]) -> None:
        """Give a row that was built by hand what `host_away.with_host` has read, in the order of JOINED."""
        self.__dict__.update(zip(JOINED, values, strict=True))

    @property
    def is_ready(self) -> bool:
        """Return whether it can be used: ready, and its host is there."""
        return self.ready and self.shown_host.state != UNREACHABLE

    @property
    def cpus(self) -> int | float:
        return whole_or_fraction(self.cpu_millis)

    @property
    def applied(self) -> Resources:
        """Return the sizes with which the machine was last made."""
        cpus = whole_or_fraction(self.applied_cpu_millis)
        return Resources(cpus, self.applied_memory_mb, self.applied_disk_size_mb)

    @property
    def pending_resources(self) -> dict[str, int | float] | None:
        """Return the saved sizes that the machine does not have yet (wire contract, section 3), or None if there are
        none.
        """
        applied = self.applied
        pending = {
            name: getattr(self, name) for name in applied._fields if getattr(self, name) != getattr(applied, name)
        }
        return pending or None

    @property
    def published(self) -> Iterable[models.Model]:
        """Return every public port, without a query if there is none."""
        return self.public_ports.all() if self.published_ports else ()

    @property
    def failure(self) -> FailureReason | None:
        """Return why the last operation failed, if it did."""
        return FailureReason(self.error_code, self.error_message) if self.error_code else None

    @property
    def provisioning_failure(self) -> FailureReason | None:
        """Return why the creation failed, if it did."""
        if not self.provisioning_error_code:
            return None
        return FailureReason(self.provisioning_error_code, self.provisioning_error)

    @property
    def is_running(self) -> bool:
        """Return whether the VM's process exists; true until its shutdown is complete.

        Without a start time there is no process: for example, a stopped workspace that is being resized.
        """
        return self.status in HOLDS_PROCESS and self.started_at is not None

    @property
    def sleeps_when_idle(self) -> bool:
        return self.suspend_after > 0

    def uptime(self, now: datetime | None = None) -> int:
        """Return whole seconds since the last start; 0 while there is no process."""
        if self.started_at is None or not self.is_running:
            return 0
        return max(0, int(((now or timezone.now()) - self.started_at).total_seconds()))
