"""Requests of the document's examples, and those that must come before."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import ExitStack
from functools import cache
from typing import Any
from urllib.parse import urlencode

from django.db.models import F
from django.utils import timezone
from requests import Request

from config.api_examples_reader import Example, all_examples, with_ids
from hosts.tokens import token_create
from namespaces.models import Namespace
from tests.api_cases.stage import Stage
from tests.api_cases.wsgi import WsgiAnswer, answer_of
from tests.hosts.rows import forget_wrong_tokens, joined_host, open_network
from tests.openapi import document
from tests.workspaces.rows import port_link, renew_leases
from vmbackend.models import Host
from workspaces.commands.input import open_input
from workspaces.host.ownership import expire_orphans
from workspaces.host.process import host_runtime
from workspaces.models import Arrival, Move, Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.states import HOST_LOST, Provisioning, Status

JSON = "application/json"
_inputs = ExitStack()


def described(name: str) -> dict[str, Any]:
    """The operation `METHOD path` of the document."""
    method, path = name.split(" ")
    found: dict[str, Any] = document()["paths"][path][method.lower()]
    return found


def send_before(name: str, stage: Stage) -> list[tuple[str, WsgiAnswer]]:
    """What the example of an operation needs. Returns methods and answers."""
    _prepare(name, stage)
    found = []
    for before in _examples()[name].get("before", ()):
        answer = send_example(before["request"], before, stage)
        found.append((before["request"].partition(" ")[0].lower(), answer))
        if before["request"].startswith("POST /r/exec"):
            # A machine of the cases has no tasks.
            tasks = json.loads(send_example("GET /r/exec", {}, stage).content).get("tasks", [])
            stage.ids["task_id"] = tasks[0]["id"] if tasks else stage.ids["task_id"]
        is_json = answer.status_code == 200 and before["request"].startswith("POST /r/")
        body = json.loads(answer.content) if is_json and "/stream" not in before["request"] else {}
        if before["request"] == "POST /r/files/links":
            stage.ids["file_link"] = body["url"].rpartition("/")[2]
        # A machine of the cases has neither.
        if before["request"] == "POST /r/terminals":
            stage.ids["terminal_id"] = body.get("id", stage.ids["terminal_id"])
        if before["request"] == "POST /r/watchers":
            stage.ids["watcher_id"] = body.get("watcher", {}).get("id", stage.ids["watcher_id"])
    return found


@cache
def _examples() -> dict[str, Example]:
    return all_examples()


def _prepare(name: str, stage: Stage) -> None:
    """Make rows that no request brings about: a creation that failed; a command beside it; a link whose id is
    known; a namespace that is not the default one.
    """
    if name.endswith("/{stdin_key}/input"):
        asyncio.run(_open_input(stage.ids["workspace_id"], stage.ids["stdin_key"]))
    if name.endswith("/{link_id}"):
        stage.ids["link_id"] = port_link(Workspace.objects.get(pk=stage.ids["workspace_id"])).pk
    _prepare_hosts(name, stage)
    if name.endswith("/provisioning/retry"):
        failed = {"status": Status.FAILED, "provisioning_state": Provisioning.FAILED, "ready": False}
        Workspace.objects.filter(pk=stage.ids["workspace_id"]).update(**failed)
    if name in ("DELETE /namespaces/{namespace_id}", "POST /namespaces/{namespace_id}/suspend"):
        made = Namespace.objects.create(account=stage.owner.account, name="Other", slug=f"other-{name[:1].lower()}")
        stage.ids["namespace_id"] = made.pk


def _prepare_hosts(name: str, stage: Stage) -> None:
    """Make hosts, their kept files and moves, and open the instance to joins."""
    if name.startswith(("POST /staff/hosts", "POST /join", "GET /join")):
        open_network()
    if name == "POST /join/hosts":
        forget_wrong_tokens()
        stage.ids["join_token"] = token_create(actor="test").text
    if name.endswith("/move"):
        _make_room_elsewhere()
        if name.startswith("DELETE"):
            _begin_move(Workspace.objects.get(pk=stage.ids["workspace_id"]))
    if "/staff/hosts/{host_id}/orphans" in name:
        _keep_files(stage)
    elif "/staff/hosts/{host_id}" in name:
        Host.objects.filter(name="two").delete()
        stage.ids["host_id"] = joined_host("two").pk


def _make_room_elsewhere() -> None:
    """Let another host be there to which workspaces can move, and none of them move yet."""
    Operation.objects.filter(kind=OperationKind.MOVE).delete()
    Move.objects.all().delete()
    if not Host.objects.filter(name="three").exists():
        joined_host("three")
    room = {"memory_mb": 65536, "disk_mb": 1 << 20, "disk_free_mb": 1 << 20, "arch": "amd64"}
    Host.objects.filter(name="three").update(**room)
    Host.objects.update(transfer_key="ssh-ed25519 AAAA")
    renew_leases()


def _begin_move(row: Workspace) -> None:
    """Let the workspace be moving, as a host sees it that has not begun."""
    target, now = Host.objects.get(name="three"), timezone.now()
    operation = Operation.objects.create(workspace=row, kind=OperationKind.MOVE, queue="nowhere", deadline_at=now)
    move = Move.objects.create(
        workspace_id=row.pk, account_id=row.account_id, operation_id=operation.pk, source=row.host, target=target,
        source_name="local", target_name="three", epoch=row.epoch, from_status=row.status, memory=True,
        address="10.130.240.9", counts_as=row.status, memory_mb=512, disk_mb=512, actor="staff ada", reason="test",
    )  # fmt: skip
    Arrival.objects.create(move=move, target=target)


def _keep_files(stage: Stage) -> None:
    """Let the workspace be lost with its host, which is back and has kept its files."""
    runtime, key = host_runtime(), stage.ids["workspace_id"]
    lost = {"status": Status.LOST, "ready": False, "error_code": HOST_LOST, "epoch": F("epoch") + 1}
    Workspace.objects.filter(pk=key).update(**lost)
    runtime.driver.set_aside(key)
    expire_orphans(runtime)
    stage.ids["host_id"] = runtime.host_id


async def _open_input(workspace_id: str, key: str) -> None:
    """The input of a command that is running; it is never read."""
    _inputs.enter_context(open_input(workspace_id, key))


def send_example(name: str, example: Example, stage: Stage) -> WsgiAnswer:
    """The request of an example, with the stage's ids and credentials."""
    method, path = name.split(" ")
    sent = with_ids(example, stage.ids)
    if name == "POST /join/hosts":
        sent["body"]["clock"] = time.time()
    headers = {"Content-Type": JSON} if "body" in sent else {"Content-Type": "application/octet-stream"}
    headers |= stage.headers(path, described(name).get("security", []), runs=True) | sent.get("headers", {})
    data = json.dumps(sent["body"]).encode() if "body" in sent else _text(sent)
    query = urlencode({key: _word(value) for key, value in sent.get("query", {}).items()})
    url = f"http://testserver{with_ids(path, stage.ids)}?{query}"
    return answer_of(Request(method, url, headers=headers if data else _without_type(headers), data=data).prepare())


def _text(sent: dict[str, Any]) -> bytes:
    """A body that is no JSON."""
    return base64.b64decode(sent["base64"]) if "base64" in sent else str(sent.get("text", "")).encode()


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_type(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name != "Content-Type"}
