"""The limits of the plan and the two pools (specification, Workspace quota object; errors of Workspace create).

Checks that precede a write run under the account's lock (`accounts.services.account_lock`), so that two
concurrent requests can never both take the last of a pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, Q, Sum

from accounts.models import Account, Plan
from common.errors import DomainError
from namespaces.models import Namespace
from workspaces import errors
from workspaces.models import Snapshot, Workspace
from workspaces.models.snapshot import COUNTED, LIVING
from workspaces.states import OWNS_NOTHING, USES_RUNNING_POOL


@dataclass(frozen=True, slots=True)
class Amount:
    """Resources: thousandths of a CPU, MiB, MiB; and the number of workspaces."""

    cpu_millis: int
    memory_mb: int
    disk_size_mb: int
    count: int = 1

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.cpu_millis + other.cpu_millis,
            self.memory_mb + other.memory_mb,
            self.disk_size_mb + other.disk_size_mb,
            self.count + other.count,
        )

    def __mul__(self, number: int) -> Amount:
        return Amount(
            self.cpu_millis * number, self.memory_mb * number, self.disk_size_mb * number, self.count * number
        )

    @property
    def cpus(self) -> float:
        return self.cpu_millis / 1000

    @property
    def without_memory(self) -> Amount:
        """Return the same for a machine that is off."""
        return replace(self, memory_mb=0)


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """Resources that an account owns, with its snapshots as disk, and the part of them that runs."""

    owned: Amount
    running: Amount
    records: int


@dataclass(frozen=True, slots=True)
class AccountQuota:
    """Limits and use of an account. `reason`: the error code with which the smallest create would be refused."""

    plan: Plan
    used: AccountUsage
    reason: str | None

    @property
    def limits(self) -> Amount:
        return plan_limits(self.plan)

    @property
    def pool(self) -> Amount:
        return plan_pool(self.plan)

    @property
    def running_pool(self) -> Amount:
        return plan_running_pool(self.plan)

    @property
    def can_create(self) -> bool:
        return self.reason is None


def amount_of(workspace: Workspace) -> Amount:
    """Return the desired resources: owned now, and used from the next start on."""
    return Amount(workspace.cpu_millis, workspace.memory_mb, workspace.disk_size_mb)


def columns_of(amount: Amount) -> dict[str, int]:
    """Return the columns of the desired resources."""
    return {"cpu_millis": amount.cpu_millis, "memory_mb": amount.memory_mb, "disk_size_mb": amount.disk_size_mb}


def applied_columns(amount: Amount) -> dict[str, int]:
    """Return the columns of a machine that is started with `amount`."""
    return {
        "applied_cpu_millis": amount.cpu_millis,
        "applied_memory_mb": amount.memory_mb,
        "applied_disk_size_mb": amount.disk_size_mb,
    }


def applied_amount(workspace: Workspace) -> Amount:
    """Return the sizes with which the machine was last started."""
    return Amount(workspace.applied_cpu_millis, workspace.applied_memory_mb, workspace.applied_disk_size_mb)


def growth(before: Amount, after: Amount) -> Amount:
    """Return by how much a change increases each resource; 0 if it decreases one."""
    return Amount(
        max(0, after.cpu_millis - before.cpu_millis),
        max(0, after.memory_mb - before.memory_mb),
        max(0, after.disk_size_mb - before.disk_size_mb),
        0,
    )


def plan_limits(plan: Plan) -> Amount:
    return Amount(int(plan.cpus * 1000), plan.memory_mb, plan.disk_size_mb)


def plan_pool(plan: Plan) -> Amount:
    return Amount(int(plan.pool_cpus * 1000), plan.pool_memory_mb, plan.pool_disk_size_mb)


def plan_running_pool(plan: Plan) -> Amount:
    return Amount(int(plan.running_cpus * 1000), plan.running_memory_mb, plan.running_disk_size_mb)


def account_usage(account: Account) -> AccountUsage:
    """Return the resources of an account. Running workspaces count with their applied sizes. Two queries, over covering
    indexes.
    """
    owned, running = ~Q(status__in=OWNS_NOTHING), Q(status__in=USES_RUNNING_POOL)
    sums = {
        f"{name}_{field}": Sum(prefix + field, filter=condition, default=0)
        for name, prefix, condition in (("owned", "", owned), ("running", "applied_", running))
        for field in ("cpu_millis", "memory_mb", "disk_size_mb")
    }
    counts = {"owned_count": Count("status", filter=owned), "running_count": Count("status", filter=running)}
    found = Workspace.objects.filter(account=account).order_by().aggregate(records=Count("*"), **counts, **sums)
    kept = Amount(0, 0, snapshots_mb(account), 0)
    uses = _amount(found, "owned") + kept
    return AccountUsage(owned=uses, running=_amount(found, "running"), records=found["records"])


def snapshots_mb(account: Account) -> int:
    """Return the MiB of the owned disk pool that the snapshots of an account take."""
    living = Snapshot.objects.filter(LIVING, account=account).order_by()
    return int(living.aggregate(sum=Sum("pool_mb", default=0))["sum"])


def require_snapshot_allowed(account: Account, pool_mb: int) -> None:
    """Check the limits for one more kept snapshot. Raise SnapshotLimitReached, PoolLimitReached."""
    most, current = account.plan.max_snapshots, Snapshot.objects.filter(COUNTED, account=account).count()
    if current >= most:
        raise errors.SnapshotLimitReached(
            f"The plan {account.plan.label} allows {most} snapshots.", details={"current": current, "max": most}
        )
    require_owned_pool(account.plan, account_usage(account), Amount(0, 0, pool_mb, 0))


def _amount(found: dict[str, Any], name: str) -> Amount:
    return Amount(
        found[f"{name}_cpu_millis"],
        found[f"{name}_memory_mb"],
        found[f"{name}_disk_size_mb"],
        found[f"{name}_count"],
    )


def require_create_allowed(plan: Plan, used: AccountUsage, wanted: Amount, number: int = 1) -> None:
    """Check the limits of a create of `number` workspaces of one size. Raise ResourceNotAllowed, SandboxLimitReached,
    PoolLimitReached, RunningPoolReached; in this order.
    """
    require_plan_allows(plan, wanted)
    if used.records + number > plan.max_workspaces:
        raise errors.SandboxLimitReached(
            f"The plan {plan.label} allows {plan.max_workspaces} workspaces.",
            details={"current": used.records, "max": plan.max_workspaces},
        )
    require_owned_pool(plan, used, wanted * number)
    require_running_pool(plan, used, wanted * number)


def require_plan_allows(plan: Plan, wanted: Amount) -> None:
    """Raise ResourceNotAllowed if the plan does not allow one workspace of this size."""
    _require_within(errors.ResourceNotAllowed, Amount(0, 0, 0, 0), wanted, plan_limits(plan))


def require_owned_pool(plan: Plan, used: AccountUsage, wanted: Amount) -> None:
    """Raise PoolLimitReached if the pool of owned resources has no room."""
    _require_within(errors.PoolLimitReached, used.owned, wanted, plan_pool(plan))


def require_running_pool(plan: Plan, used: AccountUsage, wanted: Amount) -> None:
    """Raise RunningPoolReached if the pool of running resources has no room."""
    _require_within(errors.RunningPoolReached, used.running, wanted, plan_running_pool(plan))


def _require_within(error: type[DomainError], used: Amount, wanted: Amount, limit: Amount) -> None:
    for field, shown, unit in (
        ("cpu_millis", "cpus", 1000),
        ("memory_mb", "memory_mb", 1),
        ("disk_size_mb", "disk_size_mb", 1),
    ):
        current, more, most = getattr(used, field), getattr(wanted, field), getattr(limit, field)
        if more and current + more > most:
            raise error(
                f"{error.message} ({shown}: {current / unit:g} used, {more / unit:g} requested, limit {most / unit:g})",
                details={
                    "resource": shown,
                    "current": current / unit,
                    "requested": more / unit,
                    "max": most / unit,
                },
            )


def require_namespace_limits(namespace: Namespace, wanted: Amount, *, new: bool, number: int = 1) -> None:
    """Raise NamespaceLimitReached at one of the namespace's own limits; `number` new workspaces of one size."""
    limits = namespace.resource_limits or {}
    most = limits.get("max_workspaces")
    if new and most is not None:
        count = Workspace.objects.filter(namespace=namespace).count()
        if count + number > most:
            raise errors.NamespaceLimitReached(
                f"The namespace allows {most} workspaces.", details={"current": count, "max": most}
            )
    for key, value in (
        ("max_vcpus", wanted.cpu_millis / 1000),
        ("max_ram_mb", wanted.memory_mb),
        ("max_disk_gb", wanted.disk_size_mb / 1024),
    ):
        cap = limits.get(key)
        if cap is not None and value > cap:
            raise errors.NamespaceLimitReached(
                f"The namespace allows {cap:g} for {key}.",
                details={"limit": key, "current": value, "max": cap},
            )


def account_quota(account: Account) -> AccountQuota:
    """Return limits and use of an account. One query."""
    used = account_usage(account)
    return AccountQuota(account.plan, used, _create_reason(account.plan, used))


def _create_reason(plan: Plan, used: AccountUsage) -> str | None:
    try:
        require_create_allowed(plan, used, Amount(100, 128, 64))
    except DomainError as exc:
        return exc.code
    return None
