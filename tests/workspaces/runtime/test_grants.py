"""Everything that a token of the runtime has opened ends with its epoch, or with what let its holder in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import DatabaseError

from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from tests.workspaces.runtime.test_tokens import (
    begin_delete,
    block_by_quota,
    deactivate,
    delete,
    stop_by_quota,
    suspend,
)
from workspaces.data_plane import holders
from workspaces.models import Workspace
from workspaces.runtime import access, grants
from workspaces.runtime.grants import RuntimeGrant, revoked_grants

pytestmark = pytest.mark.django_db


def rotate(workspace: Workspace) -> None:
    access.runtime_rotate(workspace=workspace, actor="owner")


def disable(workspace: Workspace) -> None:
    access.runtime_disable(workspace=workspace, actor="owner")


@pytest.fixture
def workspaces(api: Caller) -> list[Workspace]:
    """Two; the second is in a namespace of its own."""
    other = api.account.namespaces.create(name="Team", slug="team")
    made = [make_workspace(api.account), make_workspace(api.account, namespace=other)]
    return [access.runtime_enable(workspace=workspace, actor="owner") for workspace in made]


def granted(workspace: Workspace) -> RuntimeGrant:
    return RuntimeGrant(workspace.pk, workspace.runtime_epoch)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (rotate, holders.REPLACED),
        (disable, grants.DISABLED),
        (delete, holders.DELETED),
        (begin_delete, holders.DELETED),
        (suspend, holders.SUSPENDED),
        (stop_by_quota, holders.SUSPENDED),
        (block_by_quota, ""),
    ],
)
def test_one_ends_and_others_stay(workspaces: list[Workspace], end: Callable[[Workspace], None], reason: str) -> None:
    first, second = [granted(workspace) for workspace in workspaces]
    assert revoked_grants([first, second]) == {}
    end(workspaces[0])
    assert revoked_grants([first, second]) == ({first: reason} if reason else {})


def test_all_end_with_their_account(workspaces: list[Workspace]) -> None:
    found = [granted(workspace) for workspace in workspaces]
    deactivate(workspaces[0])
    assert revoked_grants(found) == dict.fromkeys(found, holders.INACTIVE)


def test_none_ends_while_the_database_does_not_answer(
    workspaces: list[Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = granted(workspaces[0])
    rotate(workspaces[0])

    def fail(*_: object) -> None:
        raise DatabaseError

    monkeypatch.setattr(grants, "batches", fail)
    assert revoked_grants([found]) == {}
