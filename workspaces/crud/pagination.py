"""Pages of the workspace list."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request

from accounts.actors import Actor
from common.pagination import PagePagination
from workspaces import selectors


class WorkspacePagination(PagePagination):
    """`filtered`: the list has fewer rows than the actor may see, so that they must be counted."""

    results_field = "workspaces"

    def __init__(self, actor: Actor, *, filtered: bool) -> None:
        self.actor = actor
        self.filtered = filtered

    def count_rows(self, queryset: Any, request: Request) -> int:
        return selectors.total_count(self.actor, queryset, filtered=self.filtered)
