"""Audit entries of staff are added, and nothing else."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import DatabaseError, connection, transaction
from django.test import Client

from accounts.models import Plan
from staff.audit import StaffMember, Target, record_entry
from staff.models import StaffEntry
from tests.staff.pages import confirm

pytestmark = pytest.mark.django_db
SIZES = [
    "max_workspaces",
    *(f"{prefix}{size}" for prefix in ("", "pool_", "running_") for size in ("cpus", "memory_mb", "disk_size_mb")),
]


@pytest.fixture
def entry() -> StaffEntry:
    return record_entry(StaffMember(1, "root"), "workspace.stop", Target("workspaces.workspace", "ws_1", "web"))


def test_the_model_has_no_way_to_change_or_delete(entry: StaffEntry) -> None:
    entry.reason = "another"
    for forbidden in (entry.save, entry.delete, StaffEntry.objects.all().delete):
        with pytest.raises(TypeError):
            forbidden()
    with pytest.raises(TypeError):
        StaffEntry.objects.update(reason="another")
    assert StaffEntry.objects.get().reason == ""


@pytest.mark.parametrize(
    "statement",
    ["UPDATE staff_staffentry SET reason = 'x'", "DELETE FROM staff_staffentry", "TRUNCATE staff_staffentry"],
)
def test_the_database_refuses_it_too(entry: StaffEntry, statement: str) -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert StaffEntry.objects.count() == 1


def test_no_entry_takes_the_place_of_another_of_the_same_page(entry: StaffEntry) -> None:
    record_entry(StaffMember(1, "root"), "workspace.stop", Target(object_id="ws_2"), submission="a" * 32)
    columns = [field.attname for field in StaffEntry._meta.concrete_fields if field.attname != "id"]
    names, values = ", ".join(columns), ", ".join(column.replace("reason", "'x'") for column in columns)
    statement = f"INSERT INTO staff_staffentry ({names}) SELECT {values} FROM staff_staffentry WHERE submission <> ''"
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert list(StaffEntry.objects.order_by("id").values_list("reason", flat=True)) == ["", ""]


def test_a_superuser_reads_entries_and_changes_none(staff: Client, entry: StaffEntry) -> None:
    path = "/admin/staff/staffentry/"
    assert "workspace.stop" in staff.get(path).content.decode()
    assert staff.get(f"{path}{entry.pk}/change/").status_code == 200
    assert staff.get(f"{path}add/").status_code == 403
    assert staff.post(f"{path}{entry.pk}/change/", {"reason": "x"}).status_code == 403
    assert staff.post(f"{path}{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    staff.post(path, {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"})
    assert StaffEntry.objects.get().reason == ""


def test_an_entry_outlives_the_user(entry: StaffEntry) -> None:
    user = get_user_model().objects.create_superuser("gone")
    made = record_entry(StaffMember(user.pk, "gone"), "plan.changed", Target())
    user.delete()
    assert StaffEntry.objects.get(pk=made.pk).user_name == "gone"


def test_forms_are_recorded_with_the_names_of_what_changed(staff: Client) -> None:
    staff.post("/admin/accounts/account/add/", {"name": "later", "plan": "pro"})
    made = StaffEntry.objects.get()
    assert (made.action, made.object_label.partition(" ")[0], made.outcome) == ("account.added", "later", "done")
    staff.post(f"/admin/accounts/account/{made.object_id}/change/", {"name": "renamed", "plan": "pro", "reason": "why"})
    changed = StaffEntry.objects.get(action="account.changed")
    assert (changed.detail, changed.reason) == ("Name", "why")
    unused = Plan.objects.create(code="unused", label="Unused", **dict.fromkeys(SIZES, 1))
    confirm(staff, "accounts/plan", "remove", unused.pk, reason="why")
    assert StaffEntry.objects.get(action="plan.remove").object_id == "unused"


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "x" * 301, "\u202eback"])
def test_a_form_that_changes_something_needs_a_reason(staff: Client, reason: str) -> None:
    plan = Plan.objects.create(code="own", label="Own", **dict.fromkeys(SIZES, 1))
    url = f"/admin/accounts/plan/{plan.pk}/change/"
    form = staff.get(url).context["adminform"].form
    sent = {name: value for name, value in form.initial.items() if value is not None} | {"label": "Renamed"}
    answer = staff.post(url, {**sent, "reason": reason})
    assert (answer.status_code, list(answer.context["adminform"].form.errors)) == (200, ["reason"])
    assert (Plan.objects.get(pk="own").label, StaffEntry.objects.count()) == ("Own", 0)
    assert staff.post(url, {**sent, "reason": "They asked."}).status_code == 302
    entry = StaffEntry.objects.get()
    assert (entry.action, entry.detail, entry.reason) == ("plan.changed", "Label", "They asked.")


def test_what_is_new_needs_a_reason_only_where_it_is_a_price(staff: Client) -> None:
    assert not staff.get("/admin/accounts/account/add/").context["adminform"].form.fields["reason"].required
    assert staff.get("/admin/credits/rate/add/").context["adminform"].form.fields["reason"].required


def test_who_may_not_change_a_row_is_asked_for_no_reason(staff: Client) -> None:
    viewer = Client()
    user = get_user_model().objects.create_user("viewer", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_plan"))
    viewer.force_login(user)
    page = viewer.get(f"/admin/accounts/plan/{Plan.objects.all()[0].pk}/change/")
    assert page.status_code == 200
    assert b'name="reason"' not in page.content
