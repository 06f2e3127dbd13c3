"""Who opens a WebSocket of a sandbox (terminals and watches), answered before the handshake, in this process.

What a socket that is open may do, and when it ends: tests/sandboxes/sockets, test_grants.py, test_staff_terminals.py.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from common.request_origin import NO_ORIGIN
from config.asgi import application
from namespaces.services import namespace_suspend
from sandboxes import services
from sandboxes.models import StaffToken
from tests.callers import Caller
from tests.credential_kinds import headers_by_kind
from tests.sandboxes.rows import make_sandbox
from tests.world import World
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
Refusal = tuple[int, dict[str, str], dict[str, Any]]


def refusal(id: str, token: str = "", headers: dict[str, str] | None = None, end: str = "ws") -> Refusal:
    """Status, headers and body of a handshake that is refused, without what names the request or the sandbox. By a
    close code: that in place of the status, and its reason."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "path": f"/s/{id}/{end}",
        "raw_path": b"",
        "query_string": urlencode({"token": token}).encode() if token else b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
    }
    asyncio.run(application(scope, receive, send))
    first, last = sent
    if first["type"] == "websocket.accept":
        return last["code"], {}, {"reason": last["reason"]}
    found = {name.decode(): value.decode() for name, value in first["headers"]}
    body = json.loads(last["body"].decode().replace(found.pop("x-request-id"), "REQUEST").replace(id, "ID"))
    found["content-length"] = ""
    return first["status"], found, body


def test_a_credential_of_another_kind_is_as_none(committed_world: World) -> None:
    """Neither as the address's token nor as a header."""
    given, ids = headers_by_kind(committed_world)
    known = refusal(ids["sandbox_id"])
    assert (known[0], known[2]["code"]) == (401, "unauthorized")
    for kind, headers in given.items():
        assert refusal(ids["sandbox_id"], headers=headers) == known, kind
        token = headers.get("Authorization", "Bearer sbt_unknown").partition(" ")[2]
        assert kind == "sandboxToken" or refusal(ids["sandbox_id"], token) == known, kind


def test_the_token_counts_in_the_address_only(api: Caller) -> None:
    sandbox, token = make_sandbox(api.account, status=Status.STOPPED)
    for headers in ({"Authorization": f"Bearer {token}"}, {"Cookie": f"token={token}"}, {"X-Client-Secret": token}):
        assert refusal(sandbox.pk, headers=headers)[0] == 401
    assert refusal(sandbox.pk, token)[2]["code"] == "vm_not_running"


@pytest.mark.parametrize("end", ["", "ws", "ws/"])
def test_another_accounts_sandbox_is_as_none(api: Caller, stranger: Caller, end: str) -> None:
    mine, token = make_sandbox(api.account, status=Status.STOPPED)
    assert refusal(mine.pk, token, end=end)[0] == 409
    foreign = [make_sandbox(stranger.account, status=status)[0].pk for status in (Status.STOPPED, Status.SLEEPING)]
    beside = make_sandbox(api.account, status=Status.STOPPED)[0].pk
    absent = refusal("sbx_2222222222222222", token, end=end)
    assert (absent[0], absent[2]["code"]) == (403, "forbidden")
    assert all(refusal(id, token, end=end) == absent for id in (*foreign, beside, "nonsense"))


def test_tokens_that_ended_are_as_unknown_ones(api: Caller, stranger: Caller) -> None:
    deleting, its = make_sandbox(api.account, status=Status.DELETING)
    inactive, others = make_sandbox(stranger.account, status=Status.STOPPED)
    type(stranger.account).objects.filter(pk=stranger.account.pk).update(is_active=False)
    known = refusal(deleting.pk, "sbt_unknown")
    assert known[0] == 401
    assert refusal(deleting.pk, its) == refusal(inactive.pk, others) == known
    replaced, former = make_sandbox(api.account, status=Status.STOPPED)
    services.token_regenerate(workspace=replaced.workspace, actor="owner")
    assert (refusal(replaced.pk, former)[0], refusal("sbx_none", former)[0]) == (403, 403)


def test_nothing_is_opened_in_a_suspended_namespace(api: Caller) -> None:
    sandbox, token = make_sandbox(api.account, status=Status.STOPPED)
    sandbox.workspace.namespace.is_default = False
    sandbox.workspace.namespace.save()
    namespace_suspend(namespace=sandbox.workspace.namespace, actor="test", origin=NO_ORIGIN)
    assert refusal(sandbox.pk, token)[0] == 403


def test_tokens_of_staff_that_ended_or_are_of_another_sandbox(api: Caller, stranger: Caller) -> None:
    sandbox, _ = make_sandbox(api.account, status=Status.STOPPED)
    other, _ = make_sandbox(stranger.account, status=Status.STOPPED)
    user = get_user_model().objects.create_superuser("carol")
    token = services.staff_token_create(workspace=sandbox.workspace, user=user, actor="staff carol")
    assert refusal(sandbox.pk, token)[0] == 1001
    absent = refusal("sbx_2222222222222222", token)
    assert absent[0] == 4401
    assert refusal(other.pk, token) == absent
    unknown = refusal(sandbox.pk, "sbs_unknown")
    StaffToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert refusal(sandbox.pk, token) == unknown
    assert unknown[0] == 4401
