"""The hosts that run machines."""

from __future__ import annotations

import base64
import math
import re
import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import models
from django.db.models import QuerySet
from django.utils import timezone

from vmbackend.host_states import LEASE_FOR, LONGEST, UNREACHABLE, HostState, takes_new

if TYPE_CHECKING:
    DateTimeField = models.DateTimeField[Any, Any]
    FloatField = models.FloatField[Any, Any]
else:
    DateTimeField = models.DateTimeField
    FloatField = models.FloatField

# Lists that a host reports, by the item: whatever else it writes there is not read.
_TEMPLATE = {
    **dict.fromkeys(("cpus", "memory_mb", "size_bytes", "loads", "failures"), int),
    "made_at": float,
}
_POOL_SHARE = {
    "image": str,
    **dict.fromkeys(("cpu_millis", "memory_mb", "wanted", "ready", "claimed", "missed"), int),
}
_ORPHAN = {"name": str, "machine_id": str, "epoch": int, "kept_since": float, "size_bytes": int}
HOST_ID = re.compile(r"host_[a-z2-7]{16}")


def queue_of_host(host_id: str) -> str:
    """Return the Celery queue that only this host's vmhost consumes."""
    return f"host.{host_id}"


def new_host_id() -> str:
    """Return a fresh id: `host_` and 16 base32 characters."""
    return f"host_{base64.b32encode(secrets.token_bytes(10)).decode().lower()}"


class ShownHost(NamedTuple):
    """A host as users see it; nothing of it where there is none."""

    name: str | None = None
    state: str | None = None
    since: datetime | None = None


# Larger than any size or number of a host; JSON that is sent to clients has no larger ones.
_MOST = 1 << 53


# Columns that a host writes with credentials of its own, and that others read: whatever it writes, a reader gets what
# it expects, or less of it.


class ReportedJSON(models.JSONField):
    """JSON, of which those parts are read that have the `shape`: `dict` or `list`, a list of which each item has the
    shape of the only one (a type, or an object whose values have these types), or the field's default.
    """

    def __init__(self, *args: Any, shape: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shape = shape

    def deconstruct(self) -> Any:
        """Return it as the plain field that it is for the database."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Return what is as expected of it."""
        found = super().from_db_value(value, expression, connection)
        if isinstance(self._shape, list):
            return [each for each in found if _has_shape(each, self._shape[0])] if isinstance(found, list) else []
        return found if self._shape is None or isinstance(found, self._shape) else self.get_default()


class ReportedFloat(FloatField):
    """A number; read as None if it is none, as JSON has no such numbers."""

    def deconstruct(self) -> Any:
        """Return it as the plain field that it is for the database."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.FloatField", args, kwargs

    def from_db_value(self, value: float | None, expression: Any, connection: Any) -> float | None:
        """Return the number, or None."""
        return value if value is not None and math.isfinite(value) else None


def _has_shape(item: Any, shape: Any) -> bool:
    if isinstance(shape, dict):
        return isinstance(item, dict) and all(_has_shape(item.get(name), kind) for name, kind in shape.items())
    if shape is int:
        return type(item) is int and 0 <= item < _MOST
    if shape is float:
        return type(item) in (int, float) and 0 <= item < _MOST
    return isinstance(item, shape)


class LeaseEnd(DateTimeField):
    """The end of a lease, by the database's clock alone: read as None once it is over, however it was joined, so no
    clock of another machine is ever compared with it.
    """

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, tuple[Any, ...]]:
        """Return the column as it is selected. Conditions and updates see what is stored."""
        stands = f"{sql} > STATEMENT_TIMESTAMP() AND {sql} <= STATEMENT_TIMESTAMP() + INTERVAL '%s seconds'"
        seconds = int(LONGEST.total_seconds())
        return f"CASE WHEN {stands % seconds} THEN {sql} END", tuple(params) * 3


class Host(models.Model):
    """A physical or virtual server with a `vmhost` process, which keeps this row current. The id is for good: queue,
    operations and machines go by it, and a name may change.

    Sizes are MiB; the free ones are what remains after the host's reserve. `cpus` counts logical CPUs. `subnet` is the
    IPv4 network of its machines. `address` is the IPv4 address at which the platform's other machines reach this one; a
    host without one is alone. `arch` as in OCI (amd64, arm64). `state` is the intent of staff; the lease, which vmhost
    renews, says whether the host is there. A vmhost whose hypervisor does not answer has a `problem`: it is reachable
    and takes nothing. The database keeps what is promised, and nothing else writes it (`workspaces.promised`). Rows
    are never deleted automatically.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_host_id, editable=False)
    name = models.SlugField(unique=True, max_length=40)
    state = models.CharField(
        max_length=16, choices=HostState.choices, default=HostState.ACTIVE, db_default=HostState.ACTIVE
    )
    state_since = models.DateTimeField(default=timezone.now)
    # Written by the database's clock. `lease_since`: since when it has been renewed without a gap.
    lease_until = LeaseEnd(null=True, help_text="Empty: its vmhost does not report.")
    lease_since = models.DateTimeField(null=True)
    # Set once the sweep has told the owners of its workspaces that it cannot be reached.
    is_silent = models.BooleanField(default=False, db_default=False, editable=False)
    subnet = models.CharField(max_length=20)
    address = models.CharField(max_length=15, blank=True, default="", help_text="For other hosts; empty: it is alone.")
    arch = models.CharField(max_length=16, default="amd64")
    accelerated = models.BooleanField(default=False, help_text="KVM; otherwise the machines are emulated.")
    cpus = models.PositiveIntegerField(default=0)
    memory_mb = models.PositiveIntegerField(default=0)
    memory_free_mb = models.PositiveIntegerField(default=0)
    disk_mb = models.PositiveBigIntegerField(default=0)
    disk_free_mb = models.PositiveBigIntegerField(default=0)
    snapshots = models.BooleanField(default=True, help_text="Whether machines can sleep with their memory on disk.")
    # The number in the state folder of the machine that joined as this host; empty: it did not join.
    machine_id = models.CharField(max_length=64, blank=True, default="", editable=False)
    joined_at = models.DateTimeField(null=True, editable=False)
    # The public line of its SSH key (`vmbackend.transfer`), by which other hosts know it; empty: files do not move.
    transfer_key = models.CharField(max_length=100, blank=True, default="", db_default="", editable=False)
    # Written by a machine that is to be no host any more; the control plane removes it, or sets this back to null.
    leaving_at = models.DateTimeField(null=True, editable=False)
    # What its workspaces were promised: memory of those in the running pool, disk of all that have a machine.
    memory_promised_mb = models.BigIntegerField(default=0, db_default=0, editable=False)
    disk_promised_mb = models.BigIntegerField(default=0, db_default=0, editable=False)
    machines_running = models.IntegerField(default=0, db_default=0, editable=False)
    machines_sleeping = models.IntegerField(default=0, db_default=0, editable=False)
    machines_stopped = models.IntegerField(default=0, db_default=0, editable=False)
    # Given by staff, for `placement` of creates: strings by name, and what fails together.
    labels = models.JSONField(default=dict, blank=True)
    zone = models.CharField(max_length=63, blank=True, default="")
    # References of the images that are ready there.
    images = ReportedJSON(shape=[str], default=list, blank=True)
    # The claim of the machine that has the name: `vmbackend.host_claim`. It holds while the host reports.
    claim = models.CharField(max_length=80, blank=True, default="", db_default="", editable=False)
    # As `vmbackend.driver.BootTemplate` has them.
    templates = ReportedJSON(shape=[_TEMPLATE], default=list, blank=True)
    # As `vmbackend.capabilities.HostCapabilities` has them.
    capabilities = ReportedJSON(shape=dict, default=dict, blank=True)
    # A list of `workspaces.host.pool.demand.PoolShare`, as objects.
    pool = ReportedJSON(shape=[_POOL_SHARE], default=list, blank=True)
    # A list of `vmbackend.orphans.KeptOrphan`, as objects.
    orphans = ReportedJSON(shape=[_ORPHAN], default=list, blank=True)
    boot_id = models.CharField(max_length=40, blank=True, default="", help_text="Changes when the host is booted.")
    last_seen_at = models.DateTimeField(null=True)
    clock_offset_seconds = ReportedFloat(null=True, help_text="Its clock less the database's.")
    load = ReportedFloat(null=True, help_text="Processes that ran or wanted to, averaged over a minute.")
    version = models.CharField(max_length=40, blank=True, default="", help_text="Of the platform on the host.")
    problem = models.TextField(
        blank=True, default="", help_text="Why the hypervisor does not answer; empty if it does."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["machine_id"], condition=~models.Q(machine_id=""), name="host_of_machine"),
            models.UniqueConstraint(
                fields=["subnet"], condition=models.Q(joined_at__isnull=False), name="host_subnet_once"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def queue(self) -> str:
        """Return the Celery queue that only this host's vmhost consumes."""
        return queue_of_host(self.pk)

    @property
    def has_lease(self) -> bool:
        """Return whether its lease stood by the database's clock when the row was read."""
        return self.lease_until is not None

    @property
    def is_reachable(self) -> bool:
        """Return whether its vmhost reports, and it was not given up."""
        return self.has_lease and self.state != HostState.GONE

    @property
    def answers(self) -> bool:
        """Return whether it carries out operations (`host_states.host_answers`)."""
        return self.is_reachable and not self.problem

    @property
    def takes_new(self) -> bool:
        """Return whether new machines may be placed on it (`host_states.takes_new`)."""
        return self.answers and self.state == HostState.ACTIVE

    @property
    def shown_state(self) -> str:
        """Return the state as users see it (`host_states.shown_state`)."""
        return self.state if self.has_lease or self.state == HostState.GONE else UNREACHABLE

    @property
    def shown(self) -> ShownHost:
        """Return it as users see it."""
        return ShownHost(self.name, self.shown_state, self.shown_since)

    @property
    def shown_since(self) -> datetime:
        """Return since when it is in that state (`host_states.shown_since`)."""
        if self.state == HostState.GONE:
            return self.state_since
        if not self.has_lease:
            return self.last_seen_at + LEASE_FOR if self.last_seen_at else self.created_at
        return max(self.state_since, self.lease_since or self.state_since)


_TAKES_NEW = takes_new()


def taking_new() -> QuerySet[Host]:
    """Return the hosts that take new machines now. A row that is locked by it is judged as it is under the lock."""
    return Host.objects.filter(_TAKES_NEW)
