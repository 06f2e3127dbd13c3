"""Columns and filters of this app's lists in the admin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from staff.parts.columns import change_url, duration_text, link, mebibytes_text, taken
from staff.parts.input import ID
from workspaces.models import Metered, MeterRecord, Operation, Usage, Workspace
from workspaces.models.operation import OperationState

MOST_METERED = 100
# The column of the owner that an id names, by the beginning of the id.
OWNERS = {"ws": "workspace_id", "ns": "namespace_id", "acc": "account_id"}


@admin.display(description="Size")
def size_of(row: Workspace) -> SafeString:
    sizes = f"{row.cpus} CPU, {mebibytes_text(row.memory_mb)}"
    disk = f"Disk: {mebibytes_text(row.disk_size_mb)}"
    return format_html('<span class="mvm-number" title="{}">{}</span>', disk, sizes)


@admin.display(description="Took")
def duration_of(row: Operation) -> str:
    return taken(row.created_at, row.finished_at)


@admin.display(description="CPU time", ordering="total_cpu_time_ns")
def cpu_time_of(row: Usage) -> str:
    return duration_text(row.total_cpu_time_ns / 1e9)


@admin.display(description="Workspace")
def metered_workspace(row: MeterRecord) -> SafeString | str:
    return link(row.metered.workspace_id, change_url("workspaces.Workspace", row.metered.workspace_id))


def metered_numbers(identifier: str) -> list[int]:
    """Return the numbers of the `Metered` rows of a workspace, namespace or account: the newest MOST_METERED."""
    column = OWNERS.get(identifier.partition("_")[0])
    if column is None or not ID.fullmatch(identifier):
        return []
    found = Metered.objects.filter(**{column: identifier}).order_by("-pk")
    return list(found.values_list("pk", flat=True)[:MOST_METERED])


class EndedFilter(admin.SimpleListFilter):
    """Filter of operations as the dashboard counts them: in flight, and failed or slow in the last day
    (`Operation.attention_at`).
    """

    title = "attention"
    parameter_name = "attention"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [
            ("live", "In flight"),
            ("failed", "Failed in the last day"),
            ("slow", "Slow in the last day"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Operation]) -> QuerySet[Operation]:
        if self.value() == "live":
            return queryset.filter(finished_at=None)
        recent = queryset.filter(attention_at__gte=timezone.now() - timedelta(days=1))
        if self.value() == "failed":
            return recent.filter(state=OperationState.FAILED)
        return recent.exclude(state=OperationState.FAILED) if self.value() == "slow" else queryset
