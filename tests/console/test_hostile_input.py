"""What a browser may send to the admin is answered: values that no column has, and lookups that no filter has."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from accounts.models import Account
from namespaces.models import Namespace
from tests.callers import Caller
from tests.staff.pages import action_url, shown
from tests.workspaces.rows import make_workspace
from workspaces.models import Activity, Workspace

pytestmark = pytest.mark.django_db
HUGE = "9" * 40
MODELS = {model._meta.label_lower: one for model, one in admin.site._registry.items()}
# Of numbers, of text, and of what is another row's.
BY_KEY = ["workspaces.activity", "cdn.file", "assist.daycount", "cdn.permit", "workspaces.usage"]
WITH_ACTIONS = ["auth.user", "credits.balance", "workspaces.workspace", "vmbackend.host"]


def page(label: str, kind: str = "changelist", *args: object) -> str:
    return reverse(f"admin:{label.replace('.', '_')}_{kind}", args=args)


def cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def keys(answer: Any) -> list[Any]:
    return [row.pk for row in answer.context["cl"].result_list]


@pytest.mark.parametrize(
    ("label", "lookup"),
    [
        ("workspaces.workspace", {"cmd__icontains": "hunter2"}),
        ("workspaces.workspace", {"metadata__owner": "x"}),
        ("workspaces.operation", {"params__contains": "x"}),
        ("accounts.credential", {"secret_hash__startswith": "a"}),
        ("notifications.sendtoken", {"token_hash__startswith": "a"}),
        ("certificates.certificate", {"challenge_token__startswith": "a"}),
        ("webhooks.event", {"data__contains": "x"}),
        ("auth.user", {"email__startswith": "a"}),
        ("auth.user", {"first_name__regex": "^a"}),
    ],
)
def test_a_column_that_no_filter_has_is_not_guessed_by_lookups(
    staff: Client, label: str, lookup: dict[str, str]
) -> None:
    answer = staff.get(page(label), lookup)
    assert (answer.status_code, answer["Location"]) == (302, f"{page(label)}?e=1")
    assert "no filter" in shown(staff.get(answer["Location"]))[0]


def test_the_answer_is_the_same_whether_the_guess_is_right(staff: Client, api: Caller) -> None:
    make_workspace(api.account, cmd=["serve", "--token=hunter2"])
    found = [
        staff.get(page("workspaces.workspace"), {"cmd__icontains": guess}, follow=True).context["cl"].result_count
        for guess in ("hunter2", "nothing")
    ]
    assert found == [1, 1]


@pytest.mark.parametrize("label", BY_KEY)
def test_a_cursor_of_other_values_shows_the_first_page(staff: Client, label: str) -> None:
    number = len(MODELS[label].keyset)  # type: ignore[attr-defined]
    for value in ("x", "a\0b", "\ud800", int(HUGE), -int(HUGE), "2026-01-01T00:00:00"):
        for name in ("_after", "_before"):
            assert staff.get(page(label), {name: cursor(*[value] * number)}).status_code == 200, value


def test_a_cursor_that_is_nested_deeply_shows_the_first_page(staff: Client, api: Caller) -> None:
    Activity.objects.create(account=api.account, workspace_id="ws_x", action="e")
    nested = base64.urlsafe_b64encode(b"[" * 5000).decode()
    assert len(keys(staff.get(page("workspaces.activity"), {"_after": nested}))) == 1


@pytest.mark.parametrize("number", ["-1", "0", "x", HUGE, str(2**63)])
def test_a_page_that_no_list_has_is_empty_or_the_first(staff: Client, api: Caller, number: str) -> None:
    assert staff.get(page("accounts.account"), {"p": number}).status_code == 200


@pytest.mark.parametrize("value", ["x", "1.5", "-1", HUGE])
def test_a_filter_by_what_no_row_has_finds_none(staff: Client, value: str) -> None:
    for label, name in (("credits.entry", "by_balance"), ("workspaces.workspace", "by_account")):
        answer = staff.get(page(label), {name: value})
        assert (answer.status_code, keys(answer)) == (200, [])
    assert staff.get(page("auth.user"), {"groups__id__exact": value}).status_code in (200, 302)


@pytest.mark.parametrize("label", WITH_ACTIONS)
def test_keys_that_no_row_can_have_are_no_rows(staff: Client, label: str) -> None:
    action = MODELS[label].staff_actions[0].name  # type: ignore[attr-defined]
    url = action_url(label.replace(".", "/"), action)
    for key in ("x", "", HUGE, f"-{HUGE}", "1.5"):
        assert staff.post(url, {"row": [key]}).status_code == 302, key
        chosen = {"action": action, "_selected_action": [key]}
        assert staff.post(page(label), chosen, follow=True).status_code == 200, key


def test_users_that_cannot_be_are_not_deleted(staff: Client) -> None:
    for key in ("x", HUGE):
        sent = {"action": "delete_selected", "_selected_action": [key]}
        assert staff.post(page("auth.user"), sent, follow=True).status_code == 200


def test_an_address_with_a_null_character_is_refused(staff: Client, api: Caller) -> None:
    row = make_workspace(api.account)
    for path in ("/admin/workspaces/workspace/%00/change/", "/admin/workspaces/workspace/?by_account=%00"):
        assert staff.get(path).status_code == 400
    assert staff.post("/admin/workspaces/workspace/a%00/live/").status_code == 400
    assert staff.post(action_url("workspaces/workspace", "stop"), {"row": ["a\0b"]}).status_code == 400
    assert staff.post(page("accounts.credential", "add"), {"account": "\0", "name": "x"}).status_code == 400
    assert staff.get(page("workspaces.workspace", "change", row.pk)).status_code == 200


WRONG_JSON = ['{"a": "\\u0000"}', '["\\ud800"]', '{"\\u0000": 1}', "NaN", "1e400", "[" * 5000, "{"]


@pytest.mark.parametrize("wrong", WRONG_JSON, ids=range(len(WRONG_JSON)))
def test_json_that_the_database_cannot_store_is_an_error_of_its_field(staff: Client, api: Caller, wrong: str) -> None:
    namespace = Namespace.objects.get(account=api.account)
    for url, name in (
        (page("namespaces.namespace", "change", namespace.pk), "metadata"),
        (page("workspaces.catalogentry", "add"), "env"),
        (page("cdn.planlimits", "add"), "policy"),
    ):
        answer = staff.post(url, {name: wrong, "name": "renamed", "is_default": "on"})
        assert answer.status_code == 200, url
        assert name in answer.context["adminform"].form.errors, url
    namespace.refresh_from_db()
    assert namespace.name != "renamed"


def test_json_with_a_backslash_before_u0000_is_text(staff: Client, api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account)
    sent = {"name": "x", "type": "default", "is_default": "on", "tags": "[]", "reason": "why"}
    text = '{"a": "\\\\u0000"}'
    url = page("namespaces.namespace", "change", namespace.pk)
    assert staff.post(url, {**sent, "metadata": text}).status_code == 302
    namespace.refresh_from_db()
    assert namespace.metadata == {"a": "\\u0000"}


@pytest.mark.parametrize("number", ["0", "9", "x", HUGE])
def test_a_page_that_the_search_of_the_navigation_does_not_have_is_not_found(staff: Client, number: str) -> None:
    assert staff.get("/admin/search/", {"s": "work", "page": number}).status_code == 404
    assert staff.get("/admin/search/", {"s": "work"}).status_code == 200
    assert Client().get("/admin/search/", {"s": "work"}).status_code == 302


@pytest.mark.parametrize("begin", ["22", "25", "40", "5f"])
def test_every_id_leads_to_its_page(staff: Client, api: Caller, begin: str) -> None:
    """The admin takes `_22` in an address for a quotation mark."""
    made = make_workspace(api.account)
    Workspace.objects.filter(pk=made.pk).update(id=f"ws_{begin}{'a' * 14}")
    row = Workspace.objects.get()
    assert staff.get(page("workspaces.workspace", "change", row.pk)).status_code == 200
    assert staff.get(page("workspaces.workspace", "history", row.pk))["Location"].endswith(f"by_object_id={row.pk}")
    assert staff.post(page("workspaces.workspace", "live", row.pk)).status_code == 200
    listed = staff.get(page("workspaces.workspace")).content.decode()
    assert f"/admin/workspaces/workspace/ws_5F{begin}" in listed
    assert staff.get(f"/admin/workspaces/workspace/ws_5F{begin}{'a' * 14}/change/").status_code == 200


def test_who_may_not_view_a_workspace_gets_no_token_for_its_streams(api: Caller) -> None:
    user = get_user_model().objects.create_user("partial", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="add_streamtoken"))
    client = Client()
    client.force_login(user)
    assert client.post(page("workspaces.workspace", "live", make_workspace(api.account).pk)).status_code == 403


def test_what_accounts_and_rows_are_called_is_text_on_every_page(staff: Client, api: Caller) -> None:
    hostile = "<img src=x onerror=alert(1)>'\"</script>"
    Account.objects.filter(pk=api.account.pk).update(name=hostile)
    row = make_workspace(api.account, name=hostile)
    api.account.refresh_from_db()
    pages = [
        page("workspaces.workspace"), page("workspaces.workspace", "change", row.pk), page("accounts.account"),
        page("accounts.account", "change", api.account.pk), action_url("workspaces/workspace", "stop", row.pk),
    ]  # fmt: skip
    for path in pages:
        text = staff.get(path).content.decode()
        assert "<img src=x" not in text, path
        assert "'\"</script>" not in text, path
    refused = staff.post(
        action_url("workspaces/workspace", "pause"),
        {"row": [row.pk], "reason": "<b>why</b>", "submission": "a" * 32},
        follow=True,
    ).content.decode()
    assert "&lt;img src=x" in refused
    assert "<img src=x" not in refused
    assert "<b>why</b>" not in staff.get("/admin/staff/staffentry/").content.decode()


def test_a_row_that_is_deleted_while_its_page_is_made_is_not_found(
    staff: Client, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_workspace(api.account)

    def read(*_: Any) -> None:
        raise Workspace.DoesNotExist

    monkeypatch.setattr(MODELS["workspaces.workspace"], "get_object", read)
    answer = staff.get(page("workspaces.workspace", "change", row.pk))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
