"""Tokens of staff for event streams: what they open, and when they end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.test import RequestFactory
from django.utils import timezone
from rest_framework.request import Request

from accounts.actors import Actor
from common.errors import NotFound, Unauthorized
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces.models import Activity, StreamToken, Workspace
from workspaces.streams.staff_tokens import (
    ENDED,
    StreamAuthentication,
    revoked_staff_grants,
    staff_grant_of,
    stream_token_create,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def row(api: Caller) -> Workspace:
    return make_workspace(api.account)


@pytest.fixture
def token(row: Workspace) -> str:
    user: Any = get_user_model().objects.create_superuser("carol")
    return stream_token_create(workspace=row, user=user, actor="staff carol")


def actor_by(token: str) -> Actor | None:
    request = Request(RequestFactory().get("/", headers={"Authorization": f"Bearer {token}"}))
    found = StreamAuthentication().authenticate(request)
    return found[0] if found else None


def test_a_token_reaches_its_workspace_alone(row: Workspace, token: str) -> None:
    actor = actor_by(token)
    assert actor is not None
    assert (actor.workspace_id, actor.account.pk, actor.via) == (row.pk, row.account_id, "staff")
    assert revoked_staff_grants([staff_grant_of(actor)]) == {}


def test_other_tokens_are_left_to_the_api(db: None) -> None:
    assert actor_by("eyJhbGciOi") is None
    with pytest.raises(Unauthorized):
        actor_by("wst_unknown")


def test_a_token_of_staff_is_refused_by_every_other_route(api: Caller, row: Workspace, token: str) -> None:
    for path in (f"/workspace/{row.pk}", f"/workspace/{row.pk}/logs", "/workspace", f"/workspace/{row.pk}/stats"):
        answer = api.client.get(path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401, path


@pytest.mark.parametrize("path", ["stats/stream", "logs/stream/boot", "logs/stream/cmd", "workloads/stats/stream"])
def test_another_workspace_is_as_none(api: Caller, stranger: Caller, row: Workspace, token: str, path: str) -> None:
    Workspace.objects.filter(pk=row.pk).update(status="stopped", ready=False)
    own = api.client.get(f"/workspace/{row.pk}/logs/stream/cmd", headers={"Authorization": f"Bearer {token}"})
    assert own.json()["code"] == "vm_not_running"
    others = [make_workspace(caller.account, slug="beside") for caller in (api, stranger)]
    answers = []
    for identifier in ("ws_2222222222222222", "beside", *(other.pk for other in others)):
        headers = {"Authorization": f"Bearer {token}", "X-Request-ID": "same"}
        answer = api.client.get(f"/workspace/{identifier}/{path}", headers=headers)
        answers.append((answer.status_code, dict(answer.items()), answer.content))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 404


def expire() -> None:
    StreamToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


def dismiss() -> None:
    get_user_model().objects.update(is_staff=False)


def deactivate() -> None:
    get_user_model().objects.update(is_active=False)


def demote() -> None:
    """No superuser any more, and of the role that may only look."""
    get_user_model().objects.update(is_superuser=False)
    user: Any = get_user_model().objects.get()
    user.user_permissions.add(Permission.objects.get(codename="view_workspace"))


def delete() -> None:
    StreamToken.objects.all().delete()


@pytest.mark.parametrize("end", [expire, dismiss, deactivate, demote, delete])
def test_a_token_ends_and_open_streams_with_it(token: str, end: Any) -> None:
    actor = actor_by(token)
    assert actor is not None
    grant = staff_grant_of(actor)
    end()
    assert revoked_staff_grants([grant]) == {grant: ENDED}
    with pytest.raises(Unauthorized):
        actor_by(token)


def test_a_token_of_who_has_the_permission_by_a_group_is_taken(token: str) -> None:
    user: Any = get_user_model().objects.get()
    user.is_superuser, user.is_staff = False, True
    user.save()
    group = Group.objects.create(name="Watchers")
    group.permissions.add(Permission.objects.get(codename="add_streamtoken"))
    user.groups.add(group, Group.objects.create(name="Others"))
    actor = actor_by(token)
    assert actor is not None
    assert revoked_staff_grants([staff_grant_of(actor)]) == {}
    user.groups.clear()
    assert revoked_staff_grants([staff_grant_of(actor)]) == {staff_grant_of(actor): ENDED}


def test_a_workspace_that_is_being_deleted_gets_none(row: Workspace) -> None:
    Workspace.objects.filter(pk=row.pk).update(status="deleting", ready=False)
    user: Any = get_user_model().objects.create_superuser("dave")
    with pytest.raises(NotFound):
        stream_token_create(workspace=row, user=user, actor="staff dave")
    assert not StreamToken.objects.exists()
    assert not Activity.objects.filter(action="staff_view").exists()


def test_expired_tokens_are_removed_with_the_next_one(row: Workspace, token: str) -> None:
    expire()
    stream_token_create(workspace=row, user=get_user_model().objects.get(), actor="x")
    assert StreamToken.objects.count() == 1
