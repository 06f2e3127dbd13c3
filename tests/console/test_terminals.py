"""Staff open terminals of plain workspaces, by tokens of their own: of one running workspace, for sockets alone.

What sockets do is in tests/sandboxes/sockets; who of the staff gets a token is in test_roles.py, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_switch
from common.errors import Forbidden, Unauthorized
from console.roles import sync_roles
from namespaces.models import Namespace
from sandboxes import grants, services
from sandboxes.models import SandboxEvent, StaffToken
from sandboxes.tokens import SocketHolder, require_holder, require_socket_holder
from staff.models import StaffEntry
from tests.callers import Caller
from tests.sandboxes.rows import make_sandbox
from tests.sandboxes.test_socket_refusals import refusal
from tests.staff.pages import action_url, confirm, shown
from tests.workspaces.rows import make_host, make_workspace
from workspaces.models import Activity, Operation, Workspace

pytestmark = pytest.mark.django_db(transaction=True)
WHY = "They asked for help."
PAGE = "workspaces/workspace"


@pytest.fixture
def workspace(api: Caller) -> Workspace:
    return make_workspace(api.account, host=make_host(), ip="10.200.0.2")


@pytest.fixture
def user() -> User:
    return get_user_model().objects.create_superuser("carol")


@pytest.fixture
def token(workspace: Workspace, user: User) -> str:
    return services.staff_token_create(workspace=workspace, user=user, actor="staff carol")


def button(client: Client, workspace: Workspace) -> bool:
    """Among the actions of the page, and in its live part for those who see that."""
    text = client.get(f"/admin/{PAGE}/{workspace.pk}/change/").content.decode()
    found = text.count(action_url(PAGE, "terminal", workspace.pk))
    assert found in (0, 2), found
    return found == 2


def opened(client: Client, workspace: Workspace) -> Any:
    sent = {"row": [workspace.pk], "reason": WHY, "submission": secrets.token_hex(16)}
    return client.post(action_url(PAGE, "terminal"), sent)


def token_of(answer: Any, workspace: Workspace) -> str:
    target = urlsplit(answer["Location"])
    assert (target.netloc, target.path) == ("", f"/s/{workspace.pk}/terminal")
    return target.fragment.removeprefix("token=")


def grant_of(holder: SocketHolder) -> grants.SocketGrant:
    return grants.SocketGrant(holder.workspace.pk, holder.token_hash, holder.is_staff)


def test_the_button_leads_to_the_page_with_a_token_and_the_owner_reads_of_it(
    staff: Client, workspace: Workspace
) -> None:
    assert button(staff, workspace)
    answer = opened(staff, workspace)
    assert (answer.status_code, answer["Referrer-Policy"]) == (302, "no-referrer")
    assert "no-store" in answer["Cache-Control"]
    holder = require_socket_holder(workspace.pk, token_of(answer, workspace))
    assert (holder.workspace, holder.is_staff, holder.wakes) == (workspace, True, False)
    events = list(Activity.objects.order_by("pk").values_list("workspace_id", "action", "actor", "detail"))
    assert events == [
        (workspace.pk, "staff_terminal", "staff root", "Staff may open terminals in the workspace for an hour."),
        (workspace.pk, "staff_action", "staff root", f"Open a terminal by staff: {WHY}"),
    ]
    entry = StaffEntry.objects.get()
    assert (entry.action, entry.reason, entry.outcome) == ("workspace.terminal", WHY, "done")
    assert "sbs_" not in str(StaffEntry.objects.values())
    assert not SandboxEvent.objects.exists()
    page = staff.get(f"/s/{workspace.pk}/terminal")
    assert (page.status_code, page["Cache-Control"]) == (200, "no-store")


def test_the_address_is_on_the_admins_own_host_also_where_sandboxes_have_hosts(
    staff: Client, workspace: Workspace, settings: Any
) -> None:
    settings.ENV = settings.ENV.model_copy(update={"sandbox_url": "https://{id}.apps.example.org"})
    assert token_of(opened(staff, workspace), workspace).startswith("sbs_")


def test_a_reason_is_required(staff: Client, workspace: Workspace) -> None:
    sent = {"row": [workspace.pk], "reason": "", "submission": secrets.token_hex(16)}
    assert staff.post(action_url(PAGE, "terminal"), sent).status_code == 200
    assert not StaffToken.objects.exists()


@pytest.mark.parametrize("role", ["Support", "Operator", "Billing", "Administrator", "Change alone"])
def test_a_permission_of_its_own_opens_it(role: str, workspace: Workspace) -> None:
    sync_roles()
    one = get_user_model().objects.create_user("member", is_staff=True)
    if role == "Change alone":
        changes = ["view_workspace", "change_workspace", "delete_workspace", "add_streamtoken"]
        one.user_permissions.set(Permission.objects.filter(codename__in=changes))
    else:
        one.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(one)
    may = role == "Administrator"
    assert opened(client, workspace).status_code == (302 if may else 403)
    assert StaffToken.objects.count() == may
    if role != "Billing":
        assert button(client, workspace) == may


@pytest.mark.parametrize("status", ["sleeping", "stopped", "paused", "failed", "waking"])
def test_a_machine_that_does_not_run_is_refused_and_neither_woken_nor_started(
    staff: Client, workspace: Workspace, token: str, status: str
) -> None:
    Workspace.objects.update(status=status)
    assert not button(staff, workspace)
    [message] = shown(confirm(staff, PAGE, "terminal", workspace.pk, reason=WHY))
    assert f"The workspace is {status}. A terminal of staff does not wake or start a workspace" in message
    assert StaffToken.objects.count() == 1
    # The token of when it ran.
    code, _, body = refusal(workspace.pk, token)
    assert (code, body["reason"]) == (1001, f"The workspace is {status}; it must be running.")
    workspace.refresh_from_db()
    assert (workspace.status, Operation.objects.count()) == (status, 0)


def test_a_sandboxs_machine_is_opened_from_the_page_of_the_sandbox(staff: Client, api: Caller) -> None:
    sandbox, _ = make_sandbox(api.account, host=None)
    assert not button(staff, sandbox.workspace)
    assert "from the sandbox's page" in shown(confirm(staff, PAGE, "terminal", sandbox.workspace_id, reason=WHY))[0]
    assert not StaffToken.objects.exists()


def test_the_token_opens_sockets_of_its_workspace_and_nothing_else(
    api: Caller, workspace: Workspace, token: str
) -> None:
    beside = make_workspace(api.account, host=make_host(), ip="10.200.0.3")
    sandbox, sandbox_token = make_sandbox(api.account, host=None, ip="10.200.0.4")
    for other in (beside.pk, sandbox.pk, sandbox.workspace_id, workspace.pk.replace("ws_", "sbx_")):
        with pytest.raises(Forbidden):
            require_socket_holder(other, token)
    with pytest.raises(Unauthorized):
        require_holder(workspace.pk, token)
    sent = {"Authorization": f"Bearer {token}"}
    for path in (f"/s/{workspace.pk}/files/exists", f"/s/{workspace.pk}/terminal"):
        answer = Client().post(path, {"filePath": "/", "command": "id"}, content_type="application/json", headers=sent)
        assert answer.status_code == 401
    assert Client().get(f"/workspace/{workspace.pk}/stats/stream", headers=sent).status_code == 401
    assert Client().get(f"/workspace/{workspace.pk}", headers=sent).status_code == 401
    # Nor is the address of a workspace opened by anything but such a token.
    with pytest.raises(Forbidden):
        require_socket_holder(workspace.pk, sandbox_token)
    with pytest.raises(Unauthorized):
        require_socket_holder(workspace.pk, "sbt_unknown")


def test_another_workspace_is_as_none(stranger: Caller, token: str) -> None:
    other = make_workspace(stranger.account, host=make_host(), ip="10.200.0.3")
    absent = refusal("ws_2222222222222222", token)
    assert (absent[0], refusal(other.pk, token)) == (4401, absent)
    assert refusal(other.pk) == refusal("ws_2222222222222222")
    assert refusal(other.pk)[0] == 401


def expire() -> None:
    StaffToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def dismiss() -> None:
    get_user_model().objects.update(is_staff=False)


def deactivate() -> None:
    get_user_model().objects.update(is_active=False)


def demote() -> None:
    get_user_model().objects.update(is_superuser=False)


def remove_user() -> None:
    get_user_model().objects.all().delete()


@pytest.mark.parametrize("end", [expire, dismiss, deactivate, demote, remove_user])
def test_it_ends_with_its_time_its_user_and_the_users_permission(
    workspace: Workspace, token: str, end: Callable[[], None]
) -> None:
    grant = grant_of(require_socket_holder(workspace.pk, token))
    assert grants.revoked_grants([grant]) == {}
    end()
    assert grants.revoked_grants([grant]) == {grant: grants.STAFF_ENDED}
    assert refusal(workspace.pk, token) == refusal(workspace.pk, "sbs_unknown")


def suspend(workspace: Workspace) -> None:
    Namespace.objects.update(status="suspended", suspended_by_hand=True)


def switch_off(workspace: Workspace) -> None:
    account_switch(Account.objects.get(pk=workspace.account_id), is_active=False)


def begin_delete(workspace: Workspace) -> None:
    Workspace.objects.update(status="deleting", ready=False)


def remove(workspace: Workspace) -> None:
    Workspace.objects.all().delete()


@pytest.mark.parametrize(
    ("end", "reason", "code"),
    [
        (suspend, grants.SUSPENDED, 1001),
        (switch_off, grants.INACTIVE, 4401),
        (begin_delete, grants.DELETED, 4401),
        (remove, grants.DELETED, 4401),
    ],
)
def test_it_ends_with_the_workspace_and_where_nothing_may_run(
    workspace: Workspace, token: str, end: Callable[[Workspace], None], reason: str, code: int
) -> None:
    grant = grant_of(require_socket_holder(workspace.pk, token))
    end(workspace)
    assert grants.revoked_grants([grant]) == {grant: reason}
    assert refusal(workspace.pk, token)[0] == code


def test_no_terminal_is_opened_for_an_account_that_is_not_active(staff: Client, workspace: Workspace) -> None:
    switch_off(workspace)
    assert "not active" in shown(confirm(staff, PAGE, "terminal", workspace.pk, reason=WHY))[0]
    assert not StaffToken.objects.exists()
