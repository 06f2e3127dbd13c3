"""Statements that are compiled once, and what they find at each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.db.models import QuerySet
from django.utils import timezone

from accounts.models import Account
from common.compiled_query import CompiledQuery
from namespaces.models import Namespace
from tests.callers import Caller

pytestmark = pytest.mark.django_db
COLUMNS = ("slug", "suspended_by_hand", "deleted_at", "created_at", "account__name")


class Counted:
    """How often the ORM wrote the statement."""

    def __init__(self) -> None:
        self.calls = 0

    def rows(self, slugs: Sequence[str]) -> QuerySet[Namespace, tuple[Any, ...]]:
        self.calls += 1
        return Namespace.objects.filter(slug__in=slugs, account__is_active=True).order_by().values_list(*COLUMNS)


def test_a_statement_is_compiled_once_for_each_number_of_values(api: Caller, django_assert_num_queries: Any) -> None:
    counted = Counted()
    query = CompiledQuery(counted.rows)
    for values in (["default"], ["none"], ["none", "default"], ["default", "none"]):
        with django_assert_num_queries(1):
            row = query.first_row(values)
        assert (row is not None) is ("default" in values)
    assert counted.calls == 2


def test_columns_are_as_the_orm_reads_them(api: Caller) -> None:
    Namespace.objects.update(suspended_by_hand=True, deleted_at=timezone.now())
    expected = Namespace.objects.values_list(*COLUMNS).get()
    assert CompiledQuery(Counted().rows).first_row(["default"]) == list(expected)


def test_all_rows_are_those_of_the_orm(api: Caller, stranger: Caller, django_assert_num_queries: Any) -> None:
    query, slugs = CompiledQuery(Counted().rows), ["default", "none"]
    with django_assert_num_queries(1):
        found = query.all_rows(slugs)
    assert sorted(map(str, found)) == sorted(str(list(row)) for row in Counted().rows(slugs))
    assert len(found) == Namespace.objects.filter(slug="default").count() == 2
    assert query.first_row(slugs) in found
    assert query.all_rows(["none", "nothing"]) == []


def test_each_call_reads_what_is_there_now(api: Caller) -> None:
    query = CompiledQuery(Counted().rows)
    for suspended in (False, True, False):
        Namespace.objects.update(suspended_by_hand=suspended)
        row = query.first_row(["default"])
        assert row is not None
        assert row[1] is suspended
    Account.objects.update(is_active=False)
    assert query.first_row(["default"]) is None


def test_values_are_never_a_part_of_the_statement(api: Caller) -> None:
    query = CompiledQuery(Counted().rows)
    for value in ("' OR 1=1 --", "%s", "compiled query, value 0", "default'"):
        assert query.first_row([value]) is None
        assert query.first_row(["none", value]) is None
