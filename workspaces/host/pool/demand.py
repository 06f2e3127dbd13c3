"""How many warm machines a host keeps: by its creates of the last minutes, within its limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Q
from django.utils import timezone

from vmbackend.host_states import takes_new
from workspaces.models import WarmRequest
from workspaces.warm_machines import PoolShape

WINDOW = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class PoolShare:
    """One shape's part of a pool. `wanted`, `ready`: machines; `claimed`, `missed`: creates of the last ten minutes
    that got one, and that got none.
    """

    image: str
    cpu_millis: int
    memory_mb: int
    disk_size_mb: int
    wanted: int
    ready: int
    claimed: int
    missed: int


@dataclass(frozen=True, slots=True)
class Demand:
    """Creates of one shape within the window, those that were served and those that were not."""

    claimed: int
    missed: int

    @property
    def total(self) -> int:
        return self.claimed + self.missed


def recent_demand(host_id: str) -> dict[PoolShape, Demand]:
    """Return the creates of the last ten minutes by shape, the most wanted first; none if the host takes no new
    machines. One query.
    """
    since = timezone.now() - WINDOW
    recent = WarmRequest.objects.filter(takes_new("host__"), host_id=host_id, at__gt=since)
    counted = recent.values(*PoolShape._fields).annotate(total=Count("pk"), claimed=Count("pk", filter=Q(served=True)))
    found = {}
    for row in counted.order_by("-total", *PoolShape._fields):
        shape = PoolShape(*(row[name] for name in PoolShape._fields))
        found[shape] = Demand(row["claimed"], row["total"] - row["claimed"])
    return found


def share_pool(demand: dict[PoolShape, Demand], memory_mb: int, machines: int) -> dict[PoolShape, int]:
    """Return how many machines of each shape to keep: at most one for each create, while memory and number allow, and
    in proportion to the creates.
    """
    wanted = dict.fromkeys(demand, 0)
    while True:
        fitting = [shape for shape in demand if wanted[shape] < demand[shape].total and shape.memory_mb <= memory_mb]
        if machines <= 0 or not fitting:
            return wanted
        chosen = max(fitting, key=lambda shape: demand[shape].total / (wanted[shape] + 1))
        wanted[chosen] += 1
        memory_mb, machines = memory_mb - chosen.memory_mb, machines - 1
