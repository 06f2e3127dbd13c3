"""The staff form of a namespace writes what staff changed, and nothing of what others wrote while the page was open."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from credits import ledger
from credits.entries import Purpose
from credits.models import Service
from namespaces.models import Namespace, Status
from tests.callers import Caller

pytestmark = pytest.mark.django_db

TAG = re.compile(r"<(?:input|textarea|select)\b[^>]*>")


@pytest.fixture
def team(api: Caller) -> Namespace:
    return Namespace.objects.create(account=api.account, name="Team", slug="team")


class Page:
    """A form as a browser has it since it was opened."""

    def __init__(self, staff: Client, namespace: Namespace) -> None:
        self.staff, self.path = staff, f"/admin/namespaces/namespace/{namespace.pk}/change/"
        form = staff.get(self.path).context["adminform"].form
        self.fields: dict[str, Any] = {}
        for field in form:
            shown = field.value()
            if shown is not None and shown is not False:
                self.fields[field.html_name] = "on" if shown is True else shown
                self.fields[field.html_initial_name] = "True" if shown is True else shown
            elif shown is False:
                self.fields[field.html_initial_name] = "False"

    def send(self, **changes: Any) -> None:
        fields = {**self.fields, "reason": "why", **changes}
        answer = self.staff.post(self.path, {name: value for name, value in fields.items() if value is not None})
        assert answer.status_code == 302, answer.context["adminform"].form.errors


def test_the_page_carries_what_it_shows(staff: Client, team: Namespace) -> None:
    shown = staff.get(f"/admin/namespaces/namespace/{team.pk}/change/").content.decode()
    names = {match.group(1) for tag in TAG.findall(shown) if (match := re.search(r'name="([^"]+)"', tag))}
    assert {"initial-description", "initial-tags", "initial-name"} <= names
    assert (
        not {"status", "initial-status", "suspended_by_hand", "suspended_by_quota", "is_default", "resource_limits"}
        & names
    )


def test_a_suspension_while_the_page_was_open_stays(staff: Client, api: Caller, team: Namespace) -> None:
    page = Page(staff, team)
    common: dict[str, Any] = {"namespace": team, "service": Service.SANDBOX}
    ledger.quota_set(**common, limit=Decimal(1), overdraft=Decimal(0), action="block", thresholds=[])
    ledger.credits_charge(**common, amount=Decimal(2), purpose=Purpose())
    page.send(name="New name")
    team.refresh_from_db()
    assert (team.name, team.status, team.suspended_by_quota) == ("New name", Status.SUSPENDED, True)


def test_a_change_by_the_owner_while_the_page_was_open_stays(staff: Client, api: Caller, team: Namespace) -> None:
    page = Page(staff, team)
    assert api.put("/namespaces/team", {"description": "Mine", "tags": ["a"]}).status_code == 200
    page.send(name="New name")
    team.refresh_from_db()
    assert (team.name, team.description, team.tags) == ("New name", "Mine", ["a"])


def test_what_staff_change_is_written(staff: Client, team: Namespace) -> None:
    Page(staff, team).send(type="staging", description="By staff", tags='["x"]')
    team.refresh_from_db()
    assert (team.type, team.description, team.tags) == ("staging", "By staff", ["x"])
