"""The admin of namespaces writes through services: what they refuse is shown and not written."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from namespaces.models import Namespace, NamespaceActivity, Status
from staff.models import StaffEntry
from tests.callers import Caller
from tests.staff.pages import action_url, confirm, shown
from tests.workspaces.rows import make_workspace

pytestmark = pytest.mark.django_db


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


def post(staff: Client, namespace: Namespace | None, **fields: Any) -> str:
    """The page after the form was sent, with its messages."""
    place = f"{namespace.pk}/change" if namespace else "add"
    common = {"name": "Name", "type": "default", "metadata": "{}", "tags": "[]", "reason": "why"}
    form = {**common, "resource_limits": "{}", **fields}
    answer = staff.post(f"/admin/namespaces/namespace/{place}/", form, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_form_changes_neither_the_default_nor_limits_which_takes_a_reason(
    staff: Client, api: Caller, default: Namespace
) -> None:
    team = Namespace.objects.create(account=api.account, name="Team", slug="team")
    post(staff, default, resource_limits='{"max_vcpus": 1}')
    post(staff, team, is_default="on", resource_limits='{"max_vcpus": 1}')
    for row, is_default in ((default, True), (team, False)):
        row.refresh_from_db()
        assert (row.name, row.is_default, row.resource_limits) == ("Name", is_default, {})


def test_staff_make_another_namespace_the_default_with_a_reason(staff: Client, api: Caller, default: Namespace) -> None:
    team = Namespace.objects.create(account=api.account, name="Team", slug="team", suspended_by_hand=True)
    what = ("namespaces/namespace", "make_default", team.pk)
    assert "activate it first" in shown(confirm(staff, *what, reason="why"))[0]
    Namespace.objects.update(suspended_by_hand=False)
    confirm(staff, *what, reason="")
    assert Namespace.objects.get(is_default=True) == default
    confirm(staff, *what, reason="They asked.")
    assert Namespace.objects.get(is_default=True) == team
    entry = StaffEntry.objects.latest("pk")
    assert (entry.action, entry.reason, entry.outcome) == ("namespace.make_default", "They asked.", "done")
    recorded = NamespaceActivity.objects.filter(actor="staff root").values_list("namespace_id", "action", "detail")
    assert set(recorded) == {
        (default.pk, "updated", "Changed: is_default."), (team.pk, "updated", "Changed: is_default."),
        (team.pk, "staff_action", "Make it the default by staff: They asked."),
    }  # fmt: skip


def test_staff_set_limits_within_the_plan_with_a_reason(staff: Client, api: Caller, default: Namespace) -> None:
    Namespace.objects.update(resource_limits={"max_workspaces": 3, "max_vcpus": 1.5})
    what = ("namespaces/namespace", "set_limits", default.pk)
    page = staff.get(action_url(*what)).content.decode()
    assert 'name="max_workspaces" value="3"' in page
    sent = {"max_workspaces": "2", "max_disk_gb": "0.5"}
    for wrong in ({"reason": ""}, {"max_workspaces": "-1"}, {"max_vcpus": "x"}, {"max_ram_mb": "9" * 30}):
        confirm(staff, *what, **{**sent, "reason": "why", **wrong})
    assert "allows" in shown(confirm(staff, *what, max_workspaces="1000000", reason="why"))[0]
    default.refresh_from_db()
    assert default.resource_limits == {"max_workspaces": 3, "max_vcpus": 1.5}
    confirm(staff, *what, **sent, reason="Too many.")
    default.refresh_from_db()
    assert default.resource_limits == {"max_workspaces": 2, "max_disk_gb": 0.5}
    assert StaffEntry.objects.latest("pk").reason == "Too many."
    assert NamespaceActivity.objects.filter(action="staff_action", detail="Set limits by staff: Too many.").exists()


def test_another_default_takes_the_place_of_the_first(staff: Client, default: Namespace) -> None:
    post(staff, None, account=default.account_id, slug="other", is_default="on")
    default.refresh_from_db()
    assert not default.is_default
    assert Namespace.objects.get(account=default.account_id, is_default=True).slug == "other"


def test_the_form_suspends_and_restores_nothing_which_takes_a_reason(staff: Client, default: Namespace) -> None:
    fields = {"account": default.account_id, "slug": "default", "is_default": "on"}
    post(staff, default, **fields, status="suspended", suspended_by_hand="on", suspended_by_quota="on")
    default.refresh_from_db()
    state = (default.status, default.suspended_by_hand, default.suspended_by_quota)
    assert state == (Status.ACTIVE, False, False)
    Namespace.objects.update(status=Status.SUSPENDED, suspended_by_hand=True)
    post(staff, default, **fields, status="active")
    default.refresh_from_db()
    assert (default.status, default.suspended_by_hand) == (Status.SUSPENDED, True)
    post(staff, None, account=default.account_id, slug="other", status="suspended", suspended_by_hand="on")
    other = Namespace.objects.get(slug="other")
    assert (other.status, other.suspended_by_hand) == (Status.ACTIVE, False)


def test_staff_suspend_and_activate_with_a_reason(staff: Client, api: Caller) -> None:
    team = Namespace.objects.create(account=api.account, name="Team", slug="team")
    confirm(staff, "namespaces/namespace", "suspend", team.pk, reason="")
    team.refresh_from_db()
    assert team.status == Status.ACTIVE
    confirm(staff, "namespaces/namespace", "suspend", team.pk, reason="It sends spam.")
    team.refresh_from_db()
    assert (team.status, team.suspended_by_hand) == (Status.SUSPENDED, True)
    confirm(staff, "namespaces/namespace", "activate", team.pk)
    team.refresh_from_db()
    assert (team.status, team.suspended_by_hand) == (Status.ACTIVE, False)


def test_the_default_is_not_deleted_and_has_the_workspaces_of_others(
    staff: Client, api: Caller, default: Namespace
) -> None:
    def delete(*keys: str) -> str:
        page: str = confirm(staff, "namespaces/namespace", "remove", *keys, reason="why").content.decode()
        return page

    assert "cannot be deleted" in delete(default.pk)
    assert staff.post(f"/admin/namespaces/namespace/{default.pk}/delete/", {"post": "yes"}).status_code == 403
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    row = make_workspace(api.account, namespace=other)
    assert "cannot be deleted" in delete(other.pk, default.pk)
    assert list(Namespace.objects.filter(account=api.account)) == [default]
    row.refresh_from_db()
    assert row.namespace == default


def test_what_others_refer_to_stays_and_what_the_api_could_not_show_is_refused(
    staff: Client, default: Namespace, stranger: Caller
) -> None:
    sent = {"slug": "else", "account": stranger.account.pk, "is_default": "on"}
    post(staff, default, **sent, resource_limits="", metadata="")
    former = default.account_id
    default.refresh_from_db()
    assert (default.account_id, default.slug) == (former, "default")
    assert (default.resource_limits, default.metadata) == ({}, {})
    for wrong in ({"metadata": "[1]"}, {"tags": "{}"}):
        post(staff, default, **sent, **wrong)
    for limits in ("[]", '{"max_vcpus": "x"}'):
        post(staff, None, account=former, slug="limited", resource_limits=limits)
    assert not Namespace.objects.filter(slug="limited").exists()
    default.refresh_from_db()
    assert (default.resource_limits, default.metadata, default.tags) == ({}, {}, [])
    for slug in ("ns_1", "a b", "ensure"):
        assert "A slug has" in post(staff, None, account=former, slug=slug)


def test_what_is_being_deleted_becomes_no_default(staff: Client, api: Caller, default: Namespace) -> None:
    gone = Namespace.objects.create(account=api.account, name="Gone", slug="gone", deleted_at=default.created_at)
    assert "is being deleted" in post(staff, gone, is_default="on")
    default.refresh_from_db()
    assert default.is_default
