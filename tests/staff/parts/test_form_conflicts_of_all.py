"""Of each kind of row: what others have changed is not written back by a form that was opened before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Model
from django.forms import BoundField
from django.test import Client
from django.urls import reverse

from accounts.models import Plan
from accounts.services import account_create
from cdn.models import PlanLimits
from credits.models import Rate, Unit
from namespaces.models import Namespace
from workspaces.images.models import CatalogEntry
from workspaces.images.services import catalog_entry_save

pytestmark = pytest.mark.django_db
TIME = datetime(2040, 1, 1, 10, tzinfo=UTC)


def plan() -> Model:
    return Plan.objects.get(code="pro")


def limits() -> Model:
    return PlanLimits.objects.get(plan_id="pro")


def rate() -> Model:
    return Rate.objects.create(unit=Unit.values[0], credits=Decimal("0.5"), effective_from=TIME)


def image() -> Model:
    entry = CatalogEntry(id="other", label="Other", desc="d", category="os", os_distribution="x", keywords=["a"])
    entry.image = "localhost/tiny:1"
    return catalog_entry_save(entry=entry)


def namespace() -> Model:
    return Namespace.objects.create(account=account_create(name="acme", plan="pro")[0], name="n", slug="other")


# The row, what others change, and what the form changes.
CASES: list[tuple[Callable[[], Model], dict[str, Any], dict[str, Any]]] = [
    (plan, {"cpus": Decimal(7)}, {"label": "Mine"}),
    (limits, {"policy": {"maxWidth": 7}}, {"max_bytes": 7}),
    (rate, {"effective_from": TIME.replace(hour=11)}, {"credits": "0.7"}),
    (image, {"keywords": ["theirs"]}, {"label": "Mine"}),
    (image, {"desktop": {"installable": True}}, {"label": "Mine"}),
]
NAMES = [make.__name__ for make, *_ in CASES]


def url_of(row: Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def inputs(field: BoundField) -> Iterator[tuple[str, Any]]:
    """Names and values as a browser sends them, also what the page carries as the field's former value."""
    widget: Any = getattr(field.field.widget, "widget", field.field.widget)
    shown = widget.get_context(field.html_name, field.value(), {})["widget"]
    for part in shown.get("subwidgets") or [shown]:
        if part.get("type") == "checkbox":
            yield from [(part["name"], "on")] if part["attrs"].get("checked") else []
        else:
            yield part["name"], "" if part["value"] is None else part["value"]
    if field.field.show_hidden_initial:
        hidden = field.field.hidden_widget().get_context(field.html_initial_name, field.value(), {})["widget"]
        for part in hidden.get("subwidgets") or [hidden]:
            yield part["name"], "" if part["value"] is None else part["value"]


def opened(staff: Client, url: str) -> dict[str, Any]:
    form = staff.get(url).context["adminform"].form
    return {**{name: value for field in form for name, value in inputs(field)}, "reason": "a change"}


@pytest.mark.parametrize(("make", "theirs", "mine"), CASES, ids=NAMES)
def test_a_column_that_others_changed_is_not_written_back(
    staff: Client, make: Callable[[], Model], theirs: dict[str, Any], mine: dict[str, Any]
) -> None:
    row = make()
    form = {**opened(staff, url_of(row)), **mine}
    rows = type(row)._default_manager.filter(pk=row.pk)
    rows.update(**theirs)
    refused = staff.post(url_of(row), form)
    assert refused.status_code == 200
    assert "Others have changed this" in str(refused.context["adminform"].form.non_field_errors())
    stored = rows.get()
    assert {name: getattr(stored, name) for name in theirs} == theirs
    assert str(getattr(stored, next(iter(mine)))) != str(next(iter(mine.values())))


@pytest.mark.parametrize(("make", "theirs", "mine"), CASES, ids=NAMES)
def test_a_form_that_is_sent_twice_is_saved_twice(
    staff: Client, make: Callable[[], Model], theirs: dict[str, Any], mine: dict[str, Any]
) -> None:
    row = make()
    form = {**opened(staff, url_of(row)), **mine}
    assert [staff.post(url_of(row), form).status_code for _ in range(2)] == [302, 302]
    assert staff.post(url_of(row), opened(staff, url_of(row))).status_code == 302


def test_of_a_namespace_only_what_the_form_changed_is_written(staff: Client) -> None:
    row = namespace()
    form = {**opened(staff, url_of(row)), "name": "mine"}
    Namespace.objects.filter(pk=row.pk).update(description="theirs")
    assert [staff.post(url_of(row), form).status_code for _ in range(2)] == [302, 302]
    stored = Namespace.objects.get(pk=row.pk)
    assert (stored.name, stored.description) == ("mine", "theirs")
    form = {**opened(staff, url_of(row)), "name": "mine again"}
    Namespace.objects.filter(pk=row.pk).update(name="theirs")
    assert "Others have changed this" in staff.post(url_of(row), form).content.decode()


def test_a_plan_keeps_its_code(staff: Client) -> None:
    free = Plan.objects.filter(pk="free").values().get()
    assert staff.post(url_of(plan()), {**opened(staff, url_of(plan())), "code": "free"}).status_code == 302
    assert Plan.objects.filter(pk="free").values().get() == free


@pytest.mark.parametrize("policy", ["[]", "false", "0", '"x"', "[1]", '{"max_file_bytes": 5}', '{"maxWidth": "x"}'])
def test_a_policy_is_one_that_the_api_takes(staff: Client, policy: str) -> None:
    url = url_of(limits())
    refused = staff.post(url, {**opened(staff, url), "policy": policy})
    assert refused.status_code == 200
    assert refused.context["adminform"].form.errors["policy"]


@pytest.mark.parametrize("policy", ["", "null", "{}"])
def test_an_empty_policy_has_no_fields(staff: Client, policy: str) -> None:
    url = url_of(limits())
    assert staff.post(url, {**opened(staff, url), "policy": policy}).status_code == 302
    assert PlanLimits.objects.get(plan_id="pro").policy == {}
