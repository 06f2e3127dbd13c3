"""Staff open terminals by tokens of their own: short-lived, recorded, for sockets alone."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from common.errors import Forbidden, NotFound, Unauthorized
from config.page_policies import sandbox_origins
from namespaces.models import Namespace
from sandboxes import grants, services
from sandboxes.models import Sandbox, SandboxEvent, StaffToken
from sandboxes.tokens import require_holder, require_socket_holder
from staff.models import StaffEntry
from tests.callers import Caller
from tests.sandboxes.conftest import Holder
from tests.sandboxes.rows import make_sandbox
from tests.staff.pages import action_url, shown
from workspaces.models import Activity, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sandbox(api: Caller) -> Sandbox:
    return make_sandbox(api.account, host=None, status="stopped")[0]


@pytest.fixture
def user() -> Any:
    return get_user_model().objects.create_superuser("carol")


@pytest.fixture
def token(sandbox: Sandbox, user: User) -> str:
    return services.staff_token_create(workspace=sandbox.workspace, user=user, actor="staff carol")


def page_of(sandbox: Sandbox) -> str:
    return action_url("sandboxes/sandbox", "terminal", sandbox.pk)


def opened(client: Client, sandbox: Sandbox, **more: Any) -> Any:
    sent = {"row": [sandbox.pk], "reason": "They asked for help.", "submission": secrets.token_hex(16)}
    return client.post(page_of(sandbox), sent, **more)


def test_the_button_of_the_admin_leads_to_the_page_with_a_new_token(staff: Client, sandbox: Sandbox) -> None:
    before = Sandbox.objects.get().token_hash
    assert page_of(sandbox) in staff.get(f"/admin/sandboxes/sandbox/{sandbox.pk}/change/").content.decode()
    shown = staff.get(page_of(sandbox), follow=True)
    assert (shown.status_code, StaffToken.objects.count()) == (200, 0)
    answer = opened(staff, sandbox)
    target = urlsplit(answer["Location"])
    assert (answer.status_code, target.netloc, target.path) == (302, "", f"/s/{sandbox.pk}/terminal")
    assert "no-store" in answer["Cache-Control"]
    assert answer["Referrer-Policy"] == "no-referrer"
    token = target.fragment.removeprefix("token=")
    assert require_socket_holder(sandbox.pk, token).workspace == sandbox.workspace
    assert Sandbox.objects.get().token_hash == before
    assert not [row for row in StaffToken.objects.values_list("pk", flat=True) if row in token]


def test_what_staff_open_is_in_the_audit_log_and_in_the_owners_activity(staff: Client, sandbox: Sandbox) -> None:
    opened(staff, sandbox, headers={"User-Agent": "Browser"})
    event = SandboxEvent.objects.get()
    assert (event.action, event.actor, event.user_agent) == ("staff_terminal", "staff root", "Browser")
    entry = Activity.objects.get(action="staff_terminal")
    assert (entry.workspace_id, entry.actor) == (sandbox.workspace_id, "staff root")
    reason = Activity.objects.get(action="staff_action")
    assert reason.detail == "Open a terminal by staff: They asked for help."
    assert StaffEntry.objects.get().action == "sandbox.terminal"


def test_the_address_is_in_no_entry_and_is_made_once(staff: Client, sandbox: Sandbox) -> None:
    sent = {"row": [sandbox.pk], "reason": "why", "submission": "a" * 32}
    assert "#token=" in staff.post(page_of(sandbox), sent)["Location"]
    assert "#token=" not in staff.post(page_of(sandbox), sent)["Location"]
    assert StaffToken.objects.count() == 1
    assert "sbs_" not in str(StaffEntry.objects.values())


def test_a_permission_of_its_own_opens_it(sandbox: Sandbox) -> None:
    client = Client()
    operator = get_user_model().objects.create_user("operator", is_staff=True)
    operator.user_permissions.set(Permission.objects.filter(codename__in=["view_sandbox", "change_sandbox"]))
    client.force_login(operator)
    assert opened(client, sandbox).status_code == 403
    operator.user_permissions.add(Permission.objects.get(codename="open_terminal"))
    assert "#token=" in opened(client, sandbox)["Location"]


def test_others_than_staff_get_no_token(sandbox: Sandbox) -> None:
    client = Client()
    assert opened(client, sandbox).status_code == 302  # to the login
    client.force_login(get_user_model().objects.create_user("reader", is_staff=True))
    assert opened(client, sandbox).status_code == 403
    with_checks = Client(enforce_csrf_checks=True)
    with_checks.force_login(get_user_model().objects.create_superuser("dave"))
    assert opened(with_checks, sandbox).status_code == 403
    assert not StaffToken.objects.exists()


def test_an_unknown_sandbox_has_no_page(staff: Client) -> None:
    for key in ("sbx_2222222222222222", "x"):
        answer = staff.get(action_url("sandboxes/sandbox", "terminal", key), follow=True)
        assert shown(answer) == ["Open a terminal: no such row, or it has been deleted."]


def test_the_token_opens_sockets_of_its_sandbox_and_nothing_else(
    api: Caller, sandbox: Sandbox, token: str, holder: Holder
) -> None:
    with pytest.raises(Unauthorized):
        require_holder(sandbox.pk, token)
    assert holder.call(token=token, id=sandbox.pk).status_code == 401
    with pytest.raises(Forbidden):
        require_socket_holder(holder.id, token)
    with pytest.raises(Unauthorized):
        require_socket_holder(sandbox.pk, "sbs_unknown")


def expire(token: str) -> None:
    StaffToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def dismiss(token: str) -> None:
    get_user_model().objects.update(is_staff=False)


def deactivate(token: str) -> None:
    get_user_model().objects.update(is_active=False)


def demote(token: str) -> None:
    """As by the group of administrators, which the user has left."""
    get_user_model().objects.update(is_superuser=False)
    user: Any = get_user_model().objects.get()
    user.user_permissions.add(Permission.objects.get(codename="view_sandbox"))


def remove_user(token: str) -> None:
    get_user_model().objects.all().delete()


@pytest.mark.parametrize("end", [expire, dismiss, deactivate, demote, remove_user])
def test_it_ends_with_its_time_and_with_its_user(sandbox: Sandbox, token: str, end: Any) -> None:
    holder = require_socket_holder(sandbox.pk, token)
    grant = grants.SocketGrant(sandbox.workspace_id, holder.token_hash, staff=True)
    assert grants.revoked_grants([grant]) == {}
    end(token)
    assert grants.revoked_grants([grant]) == {grant: grants.STAFF_ENDED}
    with pytest.raises(Unauthorized):
        require_socket_holder(sandbox.pk, token)


def test_it_ends_with_the_sandbox_and_where_nothing_may_run(sandbox: Sandbox, token: str) -> None:
    holder = require_socket_holder(sandbox.pk, token)
    grant = grants.SocketGrant(sandbox.workspace_id, holder.token_hash, staff=True)
    Namespace.objects.update(status="suspended", suspended_by_hand=True)
    assert grants.revoked_grants([grant]) == {grant: grants.SUSPENDED}
    Namespace.objects.update(status="active", suspended_by_hand=False)
    Workspace.objects.filter(pk=sandbox.workspace_id).update(status="deleting", ready=False)
    assert grants.revoked_grants([grant]) == {grant: grants.DELETED}
    with pytest.raises(Unauthorized):
        require_socket_holder(sandbox.pk, token)
    user = get_user_model().objects.get()
    with pytest.raises(NotFound):
        services.staff_token_create(workspace=sandbox.workspace, user=user, actor="staff carol")


def test_the_owners_token_and_the_staffs_do_not_end_each_other(sandbox: Sandbox, token: str) -> None:
    holder = require_socket_holder(sandbox.pk, token)
    staffs = grants.SocketGrant(sandbox.workspace_id, holder.token_hash, staff=True)
    owners = grants.SocketGrant(sandbox.workspace_id, sandbox.token_hash)
    services.token_regenerate(workspace=sandbox.workspace, actor="owner")
    assert grants.revoked_grants([staffs, owners]) == {owners: grants.REPLACED}


def test_expired_tokens_are_removed_with_the_next_one(sandbox: Sandbox, token: str, user: User) -> None:
    expire(token)
    services.staff_token_create(workspace=sandbox.workspace, user=user, actor="staff carol")
    assert StaffToken.objects.filter(expires_at__gt=timezone.now()).count() == StaffToken.objects.count() == 1


@pytest.mark.parametrize(
    ("template", "origins"),
    [
        ("https://vm.example.org/s/{id}", ""),
        ("https://{id}.apps.example.org", " https://*.apps.example.org"),
        ("http://{id}.localhost:8000", " http://*.localhost:8000"),
    ],
)
def test_forms_of_the_admin_may_lead_to_sandboxes_by_host(template: str, origins: str) -> None:
    assert sandbox_origins(template) == origins
