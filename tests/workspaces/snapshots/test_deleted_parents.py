"""A workspace that is deleted in the middle of a request for a snapshot or forks of it."""

from __future__ import annotations

from threading import Thread

import pytest
from django.db import connection

from tests.threads import wait_until
from tests.workspaces.snapshots.conftest import Parent
from workspaces.crud.services import workspace_delete
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.models import Snapshot, Workspace
from workspaces.snapshots import services

pytestmark = pytest.mark.django_db(transaction=True)


def waits_for_a_lock() -> bool:
    """Return whether anybody waits in this test's database; others have theirs on the same server."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with connection.cursor() as cursor:
        cursor.execute(waiting)
        return bool(cursor.fetchone()[0])


@pytest.fixture
def deleted_after_the_check(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another request delete the workspace, as far as it comes, once it was found in a state to be kept."""

    def delete() -> None:
        workspace_delete(workspace=Workspace.objects.get(pk=parent.id), actor="test")
        connection.close()

    def checked(*_: object) -> None:
        thread = Thread(target=delete)
        thread.start()
        wait_until(lambda: not thread.is_alive() or waits_for_a_lock())
        if not thread.is_alive():
            parent.vmhost.settle()
        monkeypatch.setattr(services, "use_namespace", lambda _: None)

    monkeypatch.setattr(services, "use_namespace", checked)


@pytest.mark.usefixtures("deleted_after_the_check")
@pytest.mark.parametrize(("path", "status"), [("snapshot", 202), ("fork", 201)])
def test_the_delete_sees_what_was_requested(parent: Parent, path: str, status: int) -> None:
    answer = parent.api.post(f"/workspace/{parent.id}/{path}", {"wait_ready": False})
    assert answer.status_code == status, answer.json()
    wait_until(lambda: not waits_for_a_lock())
    parent.vmhost.settle()
    wait_until(lambda: not Workspace.objects.filter(pk=parent.id).exists())
    parent.vmhost.settle()
    reconcile_rows_and_machines(parent.vmhost.runtime)
    assert parent.stored() == set()
    assert not Snapshot.objects.exists()
    assert set(Workspace.objects.values_list("status", flat=True)) <= {"running", "failed"}
