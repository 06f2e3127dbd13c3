"""Sandboxes in the admin: through the services, with an audit entry, and without a token."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from sandboxes.models import Sandbox, SandboxEvent
from tests.fakehost import FakeHost
from tests.sandboxes.conftest import Holder
from tests.staff.pages import confirm
from workspaces.models import Operation
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/admin/sandboxes/sandbox/"


def act(staff: Client, action: str, holder: Holder) -> Any:
    return confirm(staff, "sandboxes/sandbox", action, holder.id, reason="why")


def test_staff_stop_start_and_restart_sandboxes(staff: Client, holder: Holder, vmhost: FakeHost) -> None:
    for action, status in (("stop", Status.STOPPED), ("start", Status.RUNNING), ("restart", Status.RUNNING)):
        act(staff, action, holder)
        vmhost.settle()
        assert holder.workspace.status == status
    events = SandboxEvent.objects.filter(actor="staff root").order_by("pk").values_list("action", flat=True)
    assert list(events) == ["stopped", "started", "restarted"]


def test_staff_end_a_token_and_are_shown_none(staff: Client, holder: Holder) -> None:
    before = Sandbox.objects.get().token_hash
    answer = act(staff, "end_token", holder)
    after = Sandbox.objects.get().token_hash
    assert after != before
    pages = [
        answer,
        staff.get(LIST),
        staff.get(f"{LIST}{holder.id}/change/"),
        staff.get("/admin/sandboxes/sandboxevent/"),
    ]
    for page in pages:
        assert not [secret for secret in ("sbt_", before, after) if secret in page.content.decode()]


def test_staff_delete_a_sandbox_with_its_machine(staff: Client, holder: Holder, vmhost: FakeHost) -> None:
    act(staff, "remove", holder)
    assert Operation.objects.filter(kind="delete").exists() or not Sandbox.objects.exists()
    vmhost.settle()
    assert not Sandbox.objects.exists()
    assert SandboxEvent.objects.filter(action="deleted", actor="staff root").exists()
