"""A namespace's `resource_limits`: their names, and the caps of the plan (specification, Namespace object)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounts.models import Plan
from namespaces.errors import PlanLimitExceeded

LIMIT_NAMES = ("max_workspaces", "max_vcpus", "max_ram_mb", "max_disk_gb")


def plan_caps(plan: Plan) -> dict[str, float]:
    """Return the highest value of each limit: `max_disk_gb` in GiB, the others as they are named."""
    return {
        "max_workspaces": plan.max_workspaces,
        "max_vcpus": float(plan.cpus),
        "max_ram_mb": plan.memory_mb,
        "max_disk_gb": plan.disk_size_mb / 1024,
    }


def require_plan_allows(plan: Plan, limits: Mapping[str, Any]) -> None:
    """Raise PlanLimitExceeded, which names the first limit above the plan's."""
    for name, cap in plan_caps(plan).items():
        wanted = limits.get(name)
        if wanted is not None and wanted > cap:
            raise PlanLimitExceeded(
                f"{name} is {wanted:g}, and the plan {plan.label} allows {cap:g}.",
                details={"limit": name, "current": wanted, "max": cap},
            )


def all_limits(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return every limit by name, None if it is not set."""
    return {name: limits.get(name) for name in LIMIT_NAMES}
