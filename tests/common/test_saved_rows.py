"""A row that is deleted while a form of staff with it is open is not inserted again, and not deleted twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from accounts.models import Plan
from accounts.services import account_create, plan_delete, plan_save
from cdn.models import PlanLimits
from cdn.services.limits import plan_limits_delete, plan_limits_save
from common.errors import Conflict, NotFound
from credits.models import Rate, Unit
from credits.services import rate_delete, rate_save
from namespaces.models import Namespace
from namespaces.services import namespace_save
from tests.between_queries import done_before
from workspaces.images.models import CatalogEntry
from workspaces.images.services import catalog_entry_delete, catalog_entry_save

pytestmark = pytest.mark.django_db


def new_plan() -> Plan:
    plan = Plan.objects.get(code="pro")
    plan.pk, plan.code, plan._state.adding = None, "other", True
    return plan_save(plan)


def new_limits() -> PlanLimits:
    return plan_limits_save(PlanLimits(plan=new_plan(), max_bytes=1, monthly_bytes=1))


def new_rate() -> Rate:
    return rate_save(Rate(unit=Unit.values[0], credits=Decimal(1), effective_from=timezone.now() + timedelta(days=1)))


def new_entry() -> CatalogEntry:
    return catalog_entry_save(entry=CatalogEntry(id="other", label="Other", image="localhost/tiny:1"))


def new_namespace() -> Namespace:
    account = account_create(name="acme", plan="pro")[0]
    return namespace_save(Namespace(account=account, name="n", slug="other"), actor="staff")


SAVED: list[tuple[Callable[[], Model], Callable[[Any], object]]] = [
    (new_plan, plan_save),
    (new_limits, plan_limits_save),
    (new_rate, rate_save),
    (new_entry, lambda row: catalog_entry_save(entry=row)),
]


OF_STAFF = (new_namespace, lambda row: namespace_save(row, actor="staff"))


@pytest.mark.parametrize(("make", "save"), [*SAVED, OF_STAFF], ids=["plan", "limits", "rate", "image", "namespace"])
def test_a_row_that_was_deleted_is_not_inserted_again(make: Callable[[], Model], save: Callable[[Any], object]) -> None:
    stored = make()
    rows = type(stored)._default_manager.filter(pk=stored.pk)
    save(rows.get())
    read = rows.get()
    rows.delete()
    with pytest.raises(NotFound), transaction.atomic():
        save(read)
    assert not rows.exists()


@pytest.mark.parametrize(("make", "save"), SAVED, ids=["plan", "limits", "rate", "image"])
def test_a_new_row_replaces_none_that_was_added_since(make: Callable[[], Model], save: Callable[[Any], object]) -> None:
    stored = make()
    rows = type(stored)._default_manager.filter(pk=stored.pk)
    before, second = rows.values().get(), rows.get()
    second._state.adding = True
    with pytest.raises(Conflict), transaction.atomic():
        save(second)
    assert rows.values().get() == before


DELETED = [
    (new_plan, plan_delete),
    (new_limits, plan_limits_delete),
    (new_rate, rate_delete),
    (new_entry, lambda row: catalog_entry_delete(entry=row)),
]


@pytest.mark.parametrize(("make", "delete"), DELETED, ids=["plan", "limits", "rate", "image"])
def test_a_row_is_deleted_by_one_of_two(make: Callable[[], Model], delete: Callable[[Any], object]) -> None:
    rows = type(stored := make())._default_manager.filter(pk=stored.pk)
    first, second = rows.get(), rows.get()
    delete(first)
    assert not rows.exists()
    with pytest.raises(NotFound), transaction.atomic():
        delete(second)


def test_a_form_of_a_plan_that_is_deleted_says_so(staff: Client) -> None:
    plan = new_plan()
    change = f"/admin/accounts/plan/{plan.pk}/change/"
    form = staff.get(change).context["adminform"].form
    sent = {name: value for name, value in form.initial.items() if value is not None} | {
        "label": "Renamed",
        "reason": "why",
    }
    with done_before('UPDATE "accounts_plan"', Plan.objects.filter(pk=plan.pk).delete):
        answer = staff.post(change, sent)
    assert answer.status_code == 200
    assert "This plan was deleted." in answer.content.decode()
