"""Lists of the CDN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from rest_framework.request import Request

from common.pagination import PageCountPagination

_BYTES = {"type": ["integer", "null"]}


class FilesPagination(PageCountPagination):
    """Pages of files, counted by the pools. The view sets `total_of`."""

    results_field = "files"
    total_of: Callable[[], int]

    def count_rows(self, queryset: Any, request: Request) -> int:
        return self.total_of()


class NamespacesPagination(PageCountPagination):
    """Pages of namespaces, with the account's template beside them."""

    results_field = "namespaces"
    beside_schema: ClassVar[dict[str, Any]] = {
        "defaults": {
            "type": "object",
            "properties": {
                "cdn_max_bytes": _BYTES,
                "cdn_monthly_bytes": _BYTES,
                "policy": {"type": ["object", "null"]},
            },
        }
    }
