"""The list forms of the specification: their contents, and the errors of invalid parameters."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.generics import ListAPIView
from rest_framework.response import Response
from rest_framework.serializers import ModelSerializer
from rest_framework.test import APIRequestFactory

from accounts.models import Plan
from common.pagination import OffsetPagination, PageCountPagination, PagePagination, RowsPagination

pytestmark = pytest.mark.django_db


class PlanSerializer(ModelSerializer):
    class Meta:
        model = Plan
        fields = ("code",)


@pytest.fixture(autouse=True)
def forty_five_plans(db: None) -> None:
    Plan.objects.all().delete()
    sizes = {
        f"{prefix}{size}": 1 for prefix in ("", "pool_", "running_") for size in ("cpus", "memory_mb", "disk_size_mb")
    }
    Plan.objects.bulk_create(Plan(code=f"p{number:02}", label="x", max_workspaces=1, **sizes) for number in range(45))


def listed(paginator: type[Any], **query: Any) -> Response:
    class Plans(ListAPIView):
        queryset = Plan.objects.order_by("code")
        serializer_class = PlanSerializer
        pagination_class = paginator
        authentication_classes = ()
        permission_classes = ()

    return Plans.as_view()(APIRequestFactory().get("/", query))


def codes(rows: list[dict[str, str]]) -> list[str]:
    return [row["code"] for row in rows]


def test_pages_with_their_numbers_at_the_top_level() -> None:
    class Workspaces(PagePagination):
        results_field = "workspaces"

    body = listed(Workspaces, page=3).data
    assert codes(body.pop("workspaces")) == [f"p{number}" for number in range(40, 45)]
    assert body == {"success": True, "total": 45, "page": 3, "limit": 20}


def test_offsets() -> None:
    body = listed(OffsetPagination, offset=40, limit=3).data
    assert codes(body.pop("data")) == ["p40", "p41", "p42"]
    assert body == {"success": True, "pagination": {"total": 45, "limit": 3, "offset": 40}}
    assert listed(OffsetPagination).data["pagination"] == {"total": 45, "limit": 50, "offset": 0}


@pytest.mark.parametrize(("page", "rows", "more"), [(1, 20, True), (2, 20, True), (3, 5, False), (4, 0, False)])
def test_pages_with_their_count(page: int, rows: int, more: bool) -> None:
    body = listed(PageCountPagination, page=page).data["data"]
    assert len(body.pop("files")) == rows
    shown = {"page": page, "limit": 20, "total": 45, "totalPages": 3, "hasMore": more}
    assert body == {"pagination": shown}


def test_an_empty_list_has_no_pages() -> None:
    Plan.objects.all().delete()
    shown = {"page": 1, "limit": 20, "total": 0, "totalPages": 0, "hasMore": False}
    assert listed(PageCountPagination).data["data"]["pagination"] == shown


def test_rows_without_a_count(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        body = listed(RowsPagination, offset=40, limit=3).data
    assert codes(body.pop("data")) == ["p40", "p41", "p42"]
    assert body == {"success": True}


def test_other_fields_stand_beside_the_rows() -> None:
    class WithSums(OffsetPagination):
        beside_schema = {"aggregations": {"type": "object"}}

    class WithDefaults(PageCountPagination):
        beside_schema = {"defaults": {"type": "object"}}

    sums, defaults = WithSums(), WithDefaults()
    sums.limit = defaults.limit = 20
    assert sums.get_paginated_response([], aggregations={"total_used": 1}).data["aggregations"] == {"total_used": 1}
    assert "aggregations" in sums.get_paginated_response_schema({})["required"]
    assert defaults.get_paginated_response([], defaults={}).data["data"]["defaults"] == {}
    assert "defaults" in defaults.get_paginated_response_schema({})["properties"]["data"]["required"]


@pytest.mark.parametrize("bad", ["0", "-1", "x", "1.5", "101", "99999999999999999999"])
@pytest.mark.parametrize(
    ("paginator", "field"),
    [(PagePagination, "limit"), (OffsetPagination, "limit"), (PageCountPagination, "limit")],
)
def test_a_bad_limit_is_named(paginator: type[Any], field: str, bad: str) -> None:
    answer = listed(paginator, **{field: bad})
    assert (answer.status_code, answer.data["code"]) == (400, "validation_error")
    assert list(answer.data["details"]) == [field]


@pytest.mark.parametrize(
    ("paginator", "field", "bad"),
    [
        (PagePagination, "page", "0"),
        (PagePagination, "page", "two"),
        (OffsetPagination, "offset", "-1"),
        (OffsetPagination, "offset", "1e3"),
        (PageCountPagination, "page", "99999999"),
    ],
)
def test_a_bad_start_is_named(paginator: type[Any], field: str, bad: str) -> None:
    answer = listed(paginator, **{field: bad})
    assert (answer.status_code, list(answer.data["details"])) == (400, [field])


@pytest.mark.parametrize("paginator", [PagePagination, OffsetPagination, RowsPagination, PageCountPagination])
def test_the_openapi_document_describes_parameters_and_body(paginator: type[Any]) -> None:
    one = paginator()
    parameters = {found["name"]: found["schema"] for found in one.get_schema_operation_parameters(None)}
    assert parameters["limit"]["maximum"] == 100
    schema = one.get_paginated_response_schema({"type": "array"})
    body = listed(paginator).data
    assert set(schema["required"]) == set(body)
    if paginator.container:
        assert set(schema["properties"]["data"]["required"]) == set(body["data"])
