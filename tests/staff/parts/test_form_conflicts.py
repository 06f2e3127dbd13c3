"""Two members of staff have one row's form open: neither replaces what the other wrote without knowing."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from accounts.models import Plan
from staff.models import StaffEntry

pytestmark = pytest.mark.django_db
HIDDEN = re.compile(r'<input type="hidden" name="opened_with" value="([^"]*)"')


@pytest.fixture
def url() -> str:
    return reverse("admin:accounts_plan_change", args=["pro"])


def opened(staff: Client, url: str) -> dict[str, Any]:
    """What a browser would send of the form that is open."""
    response = staff.get(url)
    form = response.context["adminform"].form
    found = HIDDEN.findall(response.content.decode())
    assert len(found) == 1
    values = {name: form[name].value() for name in form.fields}
    data = {name: value for name, value in values.items() if value is not None}
    return {**data, "reason": "a change", "opened_with": html.unescape(found[0])}


def errors(response: Any) -> str:
    return " ".join(response.context["adminform"].form.non_field_errors())


def test_a_form_that_was_opened_before_anothers_change_is_refused_once(staff: Client, url: str) -> None:
    mine, theirs = opened(staff, url), opened(staff, url)
    assert staff.post(url, {**theirs, "cpus": 7}).status_code == 302
    refused = staff.post(url, {**mine, "label": "Mine"})
    assert refused.status_code == 200
    assert "changed this since the form was opened: CPUs per workspace. Nothing was saved" in errors(refused)
    plan = Plan.objects.get(code="pro")
    assert (plan.cpus, plan.label == "Mine") == (7, False)
    assert StaffEntry.objects.filter(object_type="accounts.plan", object_id="pro").count() == 1
    # What was typed is still there; sent again, with what the page has now, it is meant.
    again = {**mine, "label": "Mine", "opened_with": html.unescape(HIDDEN.findall(refused.content.decode())[0])}
    assert refused.context["adminform"].form["label"].value() == "Mine"
    assert staff.post(url, again).status_code == 302
    plan.refresh_from_db()
    assert (plan.label, plan.cpus) == ("Mine", mine["cpus"])


def test_a_third_change_between_is_refused_again(staff: Client, url: str) -> None:
    mine = opened(staff, url)
    assert staff.post(url, {**opened(staff, url), "cpus": 7}).status_code == 302
    refused = staff.post(url, mine)
    assert staff.post(url, {**opened(staff, url), "memory_mb": 4096}).status_code == 302
    again = {**mine, "opened_with": html.unescape(HIDDEN.findall(refused.content.decode())[0])}
    assert "form was opened: Memory per workspace (MiB)." in errors(staff.post(url, again))


def test_what_both_wrote_alike_replaces_nothing(staff: Client, url: str) -> None:
    mine = opened(staff, url)
    assert staff.post(url, {**opened(staff, url), "cpus": 7}).status_code == 302
    assert staff.post(url, {**mine, "cpus": 7, "label": "Mine"}).status_code == 302
    plan = Plan.objects.get(code="pro")
    assert (plan.cpus, plan.label) == (7, "Mine")


@pytest.mark.parametrize("text", ["", "x", "[]", "null", "7", "[" * 100_000, json.dumps({"unknown": "1"})])
def test_a_client_that_sends_no_digests_of_its_form_is_not_refused(staff: Client, url: str, text: str) -> None:
    assert staff.post(url, {**opened(staff, url), "cpus": 7, "opened_with": text}).status_code == 302
    assert Plan.objects.get(code="pro").cpus == 7


def test_the_form_of_a_new_row_has_none(staff: Client) -> None:
    response = staff.get(reverse("admin:accounts_plan_add"))
    assert HIDDEN.findall(response.content.decode()) in ([], [""])


def test_a_page_has_no_value_by_which_another_could_be_guessed(staff: Client, url: str, settings: Any) -> None:
    before = opened(staff, url)["opened_with"]
    settings.SECRET_KEY = "another"
    staff.force_login(User.objects.get())  # the former session is not valid with it
    after = opened(staff, url)["opened_with"]
    assert json.loads(before).keys() == json.loads(after).keys()
    assert not set(json.loads(before).values()) & set(json.loads(after).values())
