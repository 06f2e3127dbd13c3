"""Actions of staff: confirmed, with a reason where they harm, recorded in the transaction of the service."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from staff import actions
from staff.models import StaffEntry
from tests.callers import Caller
from tests.staff.pages import action_url, confirm, shown, submission_of
from tests.workspaces.rows import make_host, make_workspace
from workspaces.models import Activity, Operation, Workspace
from workspaces.staff_actions import ACTIONS

pytestmark = pytest.mark.django_db
MODEL = "workspaces/workspace"
LIST = f"/admin/{MODEL}/"


@pytest.fixture
def workspace(api: Caller) -> Workspace:
    return make_workspace(api.account, status="running", host=make_host(), ip="10.200.0.2")


def test_an_action_is_confirmed_and_recorded_with_its_reason(staff: Client, workspace: Workspace) -> None:
    asked = staff.post(LIST, {"action": "stop", "_selected_action": [workspace.pk]})
    assert (asked.status_code, asked["Location"]) == (302, action_url(MODEL, "stop", workspace.pk))
    page = staff.get(asked["Location"]).content.decode()
    assert workspace.name in page
    assert "its memory is lost" in page
    assert not Operation.objects.exists()
    answer = confirm(staff, MODEL, "stop", workspace.pk, reason="It sends spam.")
    assert shown(answer) == ["Stop: 1 done."]
    assert Operation.objects.get().kind == "stop"
    entry = StaffEntry.objects.get()
    assert (entry.user_name, entry.action, entry.outcome) == ("root", "workspace.stop", "done")
    assert (entry.object_type, entry.object_id) == ("workspaces.workspace", workspace.pk)
    assert (entry.account_id, entry.reason, entry.ip_address) == (workspace.account_id, "It sends spam.", "127.0.0.1")


def test_the_owner_reads_who_did_it_and_why(staff: Client, api: Caller, workspace: Workspace) -> None:
    confirm(staff, MODEL, "stop", workspace.pk, reason="It sends spam.")
    entries = api.get("/workspace/activity").json()["history"][workspace.pk]
    assert "Stop by staff: It sends spam." in str([one for one in entries if "staff root" in str(one)])


@pytest.mark.parametrize("reason", ["", " ", "two\nlines", "a\x07bell", "right\u202eleft", "x" * 301])
def test_what_harms_needs_a_reason_of_one_line(staff: Client, workspace: Workspace, reason: str) -> None:
    answer = confirm(staff, MODEL, "stop", workspace.pk, reason=reason)
    assert 'role="alert"' in answer.content.decode()
    assert not Operation.objects.exists()
    assert not StaffEntry.objects.exists()


def test_what_does_no_harm_needs_no_reason(staff: Client, workspace: Workspace) -> None:
    confirm(staff, MODEL, "sleep", workspace.pk)
    assert Operation.objects.get().kind == "sleep"
    assert not Activity.objects.filter(action="staff_action").exists()


def test_a_page_that_is_sent_twice_acts_once(staff: Client, workspace: Workspace) -> None:
    sent = {"row": [workspace.pk], "reason": "why", "submission": submission_of(staff, MODEL, "stop", workspace.pk)}
    staff.post(action_url(MODEL, "stop"), sent, follow=True)
    Operation.objects.all().delete()
    Workspace.objects.update(status="running")
    again = staff.post(action_url(MODEL, "stop"), sent, follow=True)
    assert shown(again) == ["Stop: 1 had been sent before; nothing was done again."]
    assert not Operation.objects.exists()
    assert StaffEntry.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_page_that_is_sent_several_times_at_once_acts_once(api: Caller) -> None:
    row = make_workspace(api.account, status="running", host=make_host(), ip="10.200.0.2")
    stop = next(action for action in ACTIONS if action.name == "stop")

    def send(_: int) -> actions.Outcomes:
        try:
            rows = [Workspace.objects.select_related("account__plan", "host", "namespace").get(pk=row.pk)]
            return actions.rows_act(stop, rows, actions.StaffMember(1, "root"), reason="why", submission="a" * 32)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(send, range(4)))
    assert sorted((one.done, one.repeated, len(one.refused)) for one in found) == [(0, 1, 0)] * 3 + [(1, 0, 0)]
    assert Operation.objects.count() == StaffEntry.objects.count() == 1


def test_the_pages_ask_as_often_for_many_rows_as_for_few(staff: Client, api: Caller) -> None:
    host = make_host()

    def counts(number: int) -> list[int]:
        made = [make_workspace(api.account, host=host, ip=f"10.200.{number}.{last}") for last in range(2, 2 + number)]
        keys = [row.pk for row in made]
        found = []
        for path in (LIST, action_url(MODEL, "stop", *keys), f"{LIST}{keys[0]}/change/", "/admin/staff/staffentry/"):
            with CaptureQueriesContext(connection) as queries:
                assert staff.get(path).status_code == 200
            found.append(len(queries))
        confirm(staff, MODEL, "pause", *keys, reason="why")
        return found

    counts(1)  # what is read once in a process
    few = counts(2)
    assert counts(20) == few


def test_a_refusal_is_shown_for_its_row_and_recorded(staff: Client, api: Caller, workspace: Workspace) -> None:
    other = make_workspace(api.account, status="stopped", name="off")
    answer = confirm(staff, MODEL, "pause", workspace.pk, other.pk, reason="why")
    assert "Pause: 1 done." in shown(answer)
    assert [text for text in shown(answer) if "off" in text and "cannot be paused" in text]
    refused = StaffEntry.objects.get(outcome="refused")
    assert (refused.object_id, refused.reason) == (other.pk, "why")
    assert "cannot be paused" in refused.detail
    assert Operation.objects.get().workspace_id == workspace.pk
    assert not Activity.objects.filter(workspace_id=other.pk).exists()


def test_a_service_that_breaks_leaves_no_entry_of_what_was_not_done(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(act: actions.Act) -> None:
        Workspace.objects.filter(pk=act.row.pk).update(name="half")
        raise RuntimeError

    action = actions.StaffAction(name="break", label="Break", will="It breaks.", call=breaks)
    with pytest.raises(RuntimeError):
        actions.rows_act(action, [workspace], actions.StaffMember(1, "root"), submission="a" * 32)
    workspace.refresh_from_db()
    assert workspace.name != "half"
    assert not StaffEntry.objects.exists()


def test_what_commits_by_itself_is_recorded_before_and_after(workspace: Workspace) -> None:
    action = actions.StaffAction(
        name="long", label="Long", will="It takes long.", call=lambda act: None, is_atomic=False
    )
    actions.rows_act(action, [workspace], actions.StaffMember(1, "root"), submission="a" * 32)
    actions.rows_act(action, [workspace], actions.StaffMember(1, "root"), submission="a" * 32)
    assert list(StaffEntry.objects.order_by("pk").values_list("outcome", flat=True)) == ["begun", "done"]


def test_where_the_process_dies_in_between_the_beginning_is_recorded(workspace: Workspace) -> None:
    def dies(act: actions.Act) -> None:
        raise SystemExit

    action = actions.StaffAction(name="long", label="Long", will="It takes long.", call=dies, is_atomic=False)
    with pytest.raises(SystemExit):
        actions.rows_act(action, [workspace], actions.StaffMember(1, "root"), submission="a" * 32)
    assert StaffEntry.objects.get().outcome == "begun"


def test_a_row_that_is_deleted_meanwhile_is_named(staff: Client, workspace: Workspace) -> None:
    sent = {"row": [workspace.pk], "reason": "why", "submission": submission_of(staff, MODEL, "remove", workspace.pk)}
    Workspace.objects.all().delete()
    answer = staff.post(action_url(MODEL, "remove"), sent, follow=True)
    assert shown(answer) == ["Delete with all data: no such row, or it has been deleted."]


def test_more_rows_than_allowed_are_refused(staff: Client, workspace: Workspace) -> None:
    keys = [f"ws_{number}" for number in range(actions.MOST_ROWS + 1)]
    answer = staff.get(action_url(MODEL, "stop", *keys), follow=True)
    assert shown(answer) == ["Stop: at most 50 rows at once."]


def test_an_action_is_sent_with_the_csrf_token_only(workspace: Workspace) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.create_superuser("root"))
    sent = {"row": [workspace.pk], "reason": "why", "submission": "a" * 32}
    assert client.post(action_url(MODEL, "stop"), sent).status_code == 403
    assert not Operation.objects.exists()


@pytest.mark.parametrize("method", ["put", "delete", "patch"])
def test_other_methods_do_nothing(staff: Client, workspace: Workspace, method: str) -> None:
    assert getattr(staff, method)(action_url(MODEL, "stop", workspace.pk)).status_code == 405


def test_an_unknown_action_is_not_found(staff: Client, workspace: Workspace) -> None:
    assert staff.get(action_url(MODEL, "explode", workspace.pk)).status_code == 404


def buttons(client: Client, workspace: Workspace) -> set[str]:
    page = client.get(f"{LIST}{workspace.pk}/change/")
    assert page.status_code == 200
    return {one["title"] for one in page.context["actions_detail"]}


def test_the_page_of_a_row_has_the_buttons_that_its_state_allows(staff: Client, workspace: Workspace) -> None:
    assert {"Stop", "Restart", "Pause", "Put to sleep"} < buttons(staff, workspace)
    Workspace.objects.update(status="sleeping")
    assert buttons(staff, workspace) == {
        "Start", "Stop", "Resume or wake", "Reinstall", "Destroy the machine", "Delete with all data",
    }  # fmt: skip
    for action in ACTIONS:
        assert action.will.endswith(".")


def test_from_its_page_an_action_leads_back_to_it(staff: Client, workspace: Workspace) -> None:
    url = action_url(MODEL, "sleep", workspace.pk) + "&at=row"
    assert 'name="at" value="row"' in staff.get(url).content.decode()
    sent = {"row": [workspace.pk], "submission": "b" * 32, "at": "row"}
    answer = staff.post(action_url(MODEL, "sleep"), sent)
    assert answer["Location"] == f"{LIST}{workspace.pk}/change/"


def test_the_history_of_a_row_is_its_audit_entries(staff: Client, api: Caller, workspace: Workspace) -> None:
    other = make_workspace(api.account)
    confirm(staff, MODEL, "sleep", workspace.pk)
    confirm(staff, MODEL, "remove", other.pk, reason="why")
    link = re.search(r'href="([^"]+/history/)"', staff.get(f"{LIST}{workspace.pk}/change/").content.decode())
    assert link is not None
    page = staff.get(link[1], follow=True)
    assert [(row.action, row.object_id) for row in page.context["cl"].result_list] == [
        ("workspace.sleep", workspace.pk)
    ]
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_workspace"))
    client = Client()
    client.force_login(viewer)
    assert client.get(f"{LIST}{workspace.pk}/history/").status_code == 200


def test_who_may_only_look_acts_on_nothing(workspace: Workspace) -> None:
    client = Client()
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_workspace"))
    client.force_login(viewer)
    assert client.get(LIST).status_code == 200
    assert buttons(client, workspace) == set()
    sent: dict[str, Any] = {"row": [workspace.pk], "reason": "why", "submission": "c" * 32}
    assert client.get(action_url(MODEL, "stop", workspace.pk)).status_code == 403
    assert client.post(action_url(MODEL, "stop"), sent).status_code == 403
    assert not Operation.objects.exists()
