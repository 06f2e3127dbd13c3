"""Paginators for the list shapes of the specification.

| paginator | query | response beside the rows |
|---|---|---|
| `PagePagination` | `page`, `limit` | `total`, `page`, `limit` at the top level |
| `OffsetPagination` | `limit`, `offset` | `pagination{total, limit, offset}` |
| `RowsPagination` | `limit`, `offset` | nothing; the rows are not counted |
| `PageCountPagination` | `page`, `limit` | inside `data`: `pagination{page, limit, total, totalPages, hasMore}` |

A value out of range is a validation_error that names the parameter, never clamped; a page behind the last one is empty.
A view sets `pagination_class` and, on a subclass, `results_field` (the name of the list), `container` and the limits.
What else stands beside the rows (sums, defaults) is given to `get_paginated_response` by name and described in
`beside_schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

from common.requests import validated_query
from common.responses import ok

MAX_PAGE = 1_000_000
MAX_OFFSET = 100_000_000


class PageQuery(serializers.Serializer[Any]):
    """Query of a paged list: `page` from 1, `limit` 1-100, default 20. Out of range is a validation_error."""

    page = serializers.IntegerField(min_value=1, max_value=MAX_PAGE, default=1)
    limit = serializers.IntegerField(min_value=1, max_value=100, default=20)


def bounds(page: int, limit: int) -> slice:
    """Return the rows of a page, as a slice for a queryset."""
    return slice((page - 1) * limit, page * limit)


class _Pagination(BasePagination):
    """`paginate_queryset` costs one COUNT and one SELECT."""

    results_field = "data"
    # The object that holds the rows and what stands beside them; empty: the response's top level.
    container = ""
    # JSON schemas of the fields that the view gives to `get_paginated_response`.
    beside_schema: ClassVar[dict[str, Any]] = {}
    default_limit = 20
    max_limit = 100
    # The parameter that says where the page begins, its lowest value and its highest.
    start_field = "page"
    start_range = (1, MAX_PAGE)

    total = 0
    limit = 0
    start = 0

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        """Return the rows of the requested page. Raise a validation_error for bad parameters."""
        query = validated_query(self.query_serializer(), request)
        self.limit, self.start = query["limit"], query[self.start_field]
        self.total = self.count_rows(queryset, request)
        return list(queryset[self.rows()])

    def count_rows(self, queryset: Any, request: Request) -> int:
        """Return the number of rows on all pages. A subclass overrides it if that number is stored."""
        return int(queryset.count())

    def rows(self) -> slice:
        """Return the rows of the page, as a slice."""
        return bounds(self.start, self.limit)

    @classmethod
    @cache
    def query_serializer(cls) -> type[serializers.Serializer[Any]]:
        """Return the parameters, checked by the view and described in the OpenAPI document."""
        low, high = cls.start_range
        fields = {
            cls.start_field: serializers.IntegerField(min_value=low, max_value=high, default=low),
            "limit": serializers.IntegerField(min_value=1, max_value=cls.max_limit, default=cls.default_limit),
        }
        return type(f"{cls.__name__}Query", (serializers.Serializer,), fields)

    def page_fields(self) -> dict[str, Any]:
        """Return the fields of the response beside the rows."""
        raise NotImplementedError

    def page_schema(self) -> dict[str, Any]:
        """Return the JSON schema of a page."""
        raise NotImplementedError

    def get_paginated_response(self, data: Sequence[Any], **beside: Any) -> Response:
        fields = {self.results_field: data, **beside, **self.page_fields()}
        return ok(**{self.container: fields}) if self.container else ok(**fields)

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        fields = {self.results_field: schema, **self.beside_schema, **self.page_schema()}
        inner = {self.container: _object(fields)} if self.container else fields
        return _object({"success": {"type": "boolean"}, **inner})

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        low, high = self.start_range
        ranges = {self.start_field: (low, high, low), "limit": (1, self.max_limit, self.default_limit)}
        return [
            {
                "name": name,
                "in": "query",
                "required": False,
                "schema": {"type": "integer", "minimum": minimum, "maximum": maximum, "default": default},
            }
            for name, (minimum, maximum, default) in ranges.items()
        ]


class PagePagination(_Pagination):
    """`{success, <results_field>[], total, page, limit}`, as lists of workspaces and sandboxes."""

    def page_fields(self) -> dict[str, Any]:
        return {"total": self.total, "page": self.start, "limit": self.limit}

    def page_schema(self) -> dict[str, Any]:
        return _integers("total", "page", "limit")


class OffsetPagination(_Pagination):
    """`{success, data[], pagination{total, limit, offset}}`, as lists of namespaces; 50 rows by default."""

    default_limit = 50
    start_field = "offset"
    start_range = (0, MAX_OFFSET)

    def rows(self) -> slice:
        return slice(self.start, self.start + self.limit)

    def page_fields(self) -> dict[str, Any]:
        return {"pagination": {"total": self.total, "limit": self.limit, "offset": self.start}}

    def page_schema(self) -> dict[str, Any]:
        return {"pagination": {"type": "object", "properties": _integers("total", "limit", "offset")}}


class RowsPagination(OffsetPagination):
    """`{success, data[]}`, as the activity of a namespace. Costs one SELECT."""

    def count_rows(self, queryset: Any, request: Request) -> int:
        return 0

    def page_fields(self) -> dict[str, Any]:
        return {}

    def page_schema(self) -> dict[str, Any]:
        return {}


class PageCountPagination(_Pagination):
    """`{success, data{<rows>[], pagination{page, limit, total, totalPages, hasMore}}}`, as lists of the CDN."""

    container = "data"
    results_field = "files"

    def page_fields(self) -> dict[str, Any]:
        pages = -(-self.total // self.limit)
        shown = {"page": self.start, "limit": self.limit, "total": self.total}
        return {"pagination": {**shown, "totalPages": pages, "hasMore": self.start < pages}}

    def page_schema(self) -> dict[str, Any]:
        numbers = _integers("page", "limit", "total", "totalPages")
        return {"pagination": {"type": "object", "properties": {**numbers, "hasMore": {"type": "boolean"}}}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _integers(*names: str) -> dict[str, Any]:
    return {name: {"type": "integer"} for name in names}
