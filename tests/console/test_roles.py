"""Who of the staff sees and does what, as a table: every list, form and action of the admin for each role."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from django.urls import reverse

from accounts.models import Account, Plan
from console.roles import sync_roles
from staff.action_admin import StaffActionsMixin
from tests.callers import Caller
from tests.staff.pages import action_url
from tests.workspaces.rows import make_host, make_workspace

pytestmark = pytest.mark.django_db

ROLES = ["Support", "Operator", "Billing", "Administrator"]
MODELS = {model._meta.label_lower: one for model, one in admin.site._registry.items()}
ACTIONS = sorted(
    f"{label.partition('.')[2]}:{action.name}"
    for label, one in MODELS.items()
    if isinstance(one, StaffActionsMixin)
    for action in one.staff_actions
)
LABEL_OF = {label.partition(".")[2]: label for label in MODELS}
USERS = {"auth.user", "auth.group"}
BILLING_SEES = {
    "accounts.account", "accounts.plan", "namespaces.namespace", "workspaces.billingcycle", "workspaces.meterrecord",
    "workspaces.usage", "cdn.pool", "cdn.namespacequota", "cdn.planlimits", "credits.rate", "credits.balance",
    "credits.entry", "credits.hold", "credits.quotadefault", "credits.ledgercheck",
}  # fmt: skip
# What is for administrators alone.
ADMINISTRATOR_DOES = {
    "account:activate", "account:deactivate", "account:remove", "balance:reset", "balance:raise_quota",
    "catalogentry:hide_entries", "catalogentry:show_entries", "catalogentry:remove", "host:remove", "plan:remove",
    "planlimits:remove", "rate:remove", "sandbox:terminal", "user:reset_factor", "workspace:terminal",
}  # fmt: skip
DONE: dict[str, set[str]] = {
    "Support": {"customdomain:check_records"},
    "Operator": set(ACTIONS) - ADMINISTRATOR_DOES,
    "Billing": {"balance:reset", "balance:raise_quota", "rate:remove"},
    "Administrator": set(ACTIONS),
}
ADDED: dict[str, set[str]] = {
    "Support": set(),
    "Operator": set(),
    "Billing": {"credits.rate"},
    "Administrator": {
        "accounts.account", "accounts.credential", "accounts.plan", "assist.apikey", "cdn.planlimits", "credits.rate",
        "namespaces.namespace", "workspaces.catalogentry", *USERS,
    },
}  # fmt: skip


def sees(role: str) -> set[str]:
    if role == "Billing":
        return BILLING_SEES
    return set(MODELS) - (set() if role == "Administrator" else USERS)


def member(role: str | None) -> Client:
    user = get_user_model().objects.create_user("member", is_staff=True)
    if role:
        sync_roles()
        user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return client


def page(label: str, kind: str, *args: object) -> str:
    return reverse(f"admin:{label.replace('.', '_')}_{kind}", args=args)


def url_of(one: str) -> str:
    """Of an action as ACTIONS has it, and a key of no row."""
    model, _, name = one.partition(":")
    return action_url(LABEL_OF[model].replace(".", "/"), name, 0)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_sees_its_lists_and_no_other(role: str) -> None:
    client = member(role)
    assert client.get("/admin/").status_code == 200
    found = {label: client.get(page(label, "changelist")).status_code for label in MODELS}
    assert found == {label: 200 if label in sees(role) else 403 for label in MODELS}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_adds_what_it_may(role: str) -> None:
    client = member(role)
    found = {label for label in MODELS if client.get(page(label, "add")).status_code == 200}
    assert found == ADDED[role]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_opens_no_page_of_a_row_that_it_may_not_view(role: str) -> None:
    """A key of no row: who may view is led to the start page. Who may not is refused, as where there is one."""
    client = member(role)
    for label in MODELS:
        pages = [page(label, kind, "0") for kind in ("change", "history", "delete")]
        if label in sees(role):
            assert {client.get(path).status_code for path in pages[:2]} == {302}, pages
        else:
            answers = [answer.status_code for path in pages for answer in (client.get(path), client.post(path))]
            assert set(answers) == {403}, pages


@pytest.mark.parametrize("role", ROLES)
def test_a_row_that_a_role_may_not_view_is_as_none(role: str, api: Caller) -> None:
    client = member(role)
    rows = {"workspaces.workspace": make_workspace(api.account).pk, "auth.user": get_user_model().objects.get().pk}
    for label in rows.keys() - sees(role):
        for kind in ("change", "history", "delete"):
            known, absent = (client.get(page(label, kind, key)) for key in (rows[label], "0"))
            assert (known.status_code, known.content) == (absent.status_code, absent.content) == (403, absent.content)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_does_its_actions_and_no_other(role: str) -> None:
    """A key of no row: who may is led to the list, who may not is refused before it is looked for."""
    client = member(role)
    found: dict[str, int] = {}
    for one in ACTIONS:
        url = url_of(one)
        got, sent = client.get(url).status_code, client.post(url, {"row": ["0"]}).status_code
        assert got == sent
        found[one] = got
    wanted = {one: 302 if one in DONE[role] else 403 for one in ACTIONS}
    assert found == wanted, "platform/console/roles.py has what a role does, ADMINISTRATOR_DOES what operators do not"


def test_the_table_has_actions_of_every_kind() -> None:
    assert len(ACTIONS) > 45
    assert set(ACTIONS) >= ADMINISTRATOR_DOES


@pytest.mark.parametrize("role", [None, "anonymous", "no staff"])
def test_others_see_and_do_nothing(role: str | None) -> None:
    client, expected = Client(), 302
    if role is None:
        client, expected = member(None), 403
    if role == "no staff":
        client.force_login(get_user_model().objects.create_user("visitor"))
    paths = [page(label, kind) for label in MODELS for kind in ("changelist", "add")]
    paths += [
        action_url(LABEL_OF[one.partition(":")[0]].replace(".", "/"), one.partition(":")[2], 0) for one in ACTIONS
    ]
    for path in paths:
        answers = [client.get(path), client.post(path, {"row": ["0"]})]
        assert [answer.status_code for answer in answers] == [expected] * 2, path
        if expected == 302:
            assert all(answer["Location"].startswith("/admin/login/") for answer in answers)


@pytest.mark.parametrize("role", ROLES)
def test_a_page_of_a_row_is_read_and_changed_by_whom_it_is_for(role: str, api: Caller) -> None:
    client = member(role)
    row = make_workspace(api.account, host=make_host(), ip="10.200.0.2")
    assert client.get(page("workspaces.workspace", "change", row.pk)).status_code == (403 if role == "Billing" else 200)
    change = page("accounts.account", "change", api.account.pk)
    assert client.get(change).status_code == 200
    sent = client.post(change, {"name": "renamed", "plan": api.account.plan_id, "is_active": "on", "reason": "why"})
    may = role == "Administrator"
    assert sent.status_code == (302 if may else 403)
    assert Account.objects.get(pk=api.account.pk).name == ("renamed" if may else "acme")
    unused = Plan.objects.exclude(pk=api.account.plan_id)[0].pk
    assert client.get(action_url("accounts/plan", "remove", unused)).status_code == (200 if may else 403)


def test_support_sees_no_secret_of_a_customer(api: Caller) -> None:
    client = member("Support")
    row = make_workspace(api.account, host=make_host(), ip="10.200.0.2", env={"TOKEN": "hunter2"})
    text = client.get(page("workspaces.workspace", "change", row.pk)).content.decode()
    assert row.name in text
    assert "hunter2" not in text


def test_an_administrator_makes_no_superuser_and_changes_none() -> None:
    client = member("Administrator")
    root = get_user_model().objects.create_superuser("root")
    one = get_user_model().objects.create_user("one")
    fields: dict[str, Any] = {"username": "one", "is_active": "on", "is_staff": "on", "is_superuser": "on"}
    answer = client.post(page("auth.user", "change", one.pk), fields)
    assert answer.status_code == 302, answer.content
    one.refresh_from_db()
    assert (one.is_staff, one.is_superuser) == (True, False)
    assert client.post(page("auth.user", "change", root.pk), {**fields, "username": "mine"}).status_code == 403
    assert client.post(f"/admin/auth/user/{root.pk}/password/", {}).status_code == 403
    assert client.post(page("auth.user", "delete", root.pk), {"post": "yes"}).status_code == 403


def test_roles_are_made_by_migrate_and_again_as_they_were() -> None:
    sync_roles()
    before = permissions_by_group()
    assert set(ROLES) <= set(before)
    Group.objects.get(name="Support").permissions.clear()
    Group.objects.create(name="Mine")
    sync_roles()
    assert permissions_by_group() == {**before, "Mine": set()}


def test_the_migration_makes_the_roles_before_django_makes_permissions() -> None:
    """As in a fresh database, which has no permission while it is migrated; and it is repeated without harm."""
    sync_roles()
    wanted, present = {name: labels_of(name) for name in ROLES}, set(labels(Permission.objects.all()))
    Group.objects.all().delete()
    Permission.objects.all().delete()
    key = ("console", "0001_initial")
    loader = MigrationExecutor(connection).loader
    for _ in range(2):
        loader.graph.nodes[key].operations[-1].code(loader.project_state(key).apps, connection.schema_editor())
        known = set(labels(Permission.objects.all()))
        # A model that comes later has its permissions when `migrate` ends; those of one that goes later go with it.
        assert {name: labels_of(name) & present for name in ROLES} == {name: wanted[name] & known for name in ROLES}
    assert {"workspaces.view_workspace", "sandboxes.view_stafftoken", "staff.open_terminal"} <= known


def labels_of(group: str) -> set[str]:
    return set(labels(Group.objects.get(name=group).permissions))


def labels(permissions: Any) -> list[str]:
    return [f"{app}.{name}" for app, name in permissions.values_list("content_type__app_label", "codename")]


def permissions_by_group() -> dict[str, set[int]]:
    return {group.name: set(group.permissions.values_list("pk", flat=True)) for group in Group.objects.all()}


def test_an_administrator_neither_adds_a_superuser_nor_deletes_one_among_others() -> None:
    client = member("Administrator")
    root, one = get_user_model().objects.create_superuser("root"), get_user_model().objects.create_user("one")
    password = "a long one indeed 1"
    fields: dict[str, Any] = {"username": "new", "usable_password": "true", "is_superuser": "on", "is_staff": "on"}
    client.post(page("auth.user", "add"), {**fields, "password1": password, "password2": password})
    made = get_user_model().objects.get(username="new")
    assert (made.is_superuser, made.is_staff) == (False, False)
    chosen = {"action": "delete_selected", "_selected_action": [root.pk, one.pk], "post": "yes"}
    assert client.post(page("auth.user", "changelist"), chosen).status_code == 403
    assert get_user_model().objects.filter(pk__in=[root.pk, one.pk]).count() == 2


def test_nobody_sees_the_hash_of_a_password() -> None:
    client = member("Administrator")
    one = get_user_model().objects.create_user("one", password="a long one indeed 1")
    root = get_user_model().objects.create_superuser("root", password="a long one indeed 1")
    for user in (one, root):
        for kind in ("change", "history"):
            text = client.get(page("auth.user", kind, user.pk)).content.decode()
            _, _, salt, digest = user.password.split("$")
            assert salt not in text
            assert digest not in text
