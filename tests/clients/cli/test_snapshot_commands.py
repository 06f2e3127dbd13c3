"""`ws snapshot`, `ws restore` and `ws fork` beside a server that says what a test wants."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.cli.runner import PROGRAM, TerminalProcess, Ws
from tests.clients.cli.test_commands import HOSTILE, answer, lost, workspace
from tests.clients.cli.test_domain_commands import recorded
from tests.clients.scripted_server import Script, Step

ID = "snap_abcdefghijklmnop"


def snapshot(**fields: Any) -> dict[str, Any]:
    return {
        "id": ID, "name": "before", "workspace_id": "ws_1", "namespace": "default", "status": "ready", "error": None,
        "memory": True, "image": "tiny", "image_digest": "sha256:1", "size_bytes": 3 << 20, "host": "h",
        "resources": {"cpus": 1, "memory_mb": 128, "disk_size_mb": 64}, "usable": True, "unusable_reason": None,
        "parent_id": None, "dependants": 2, "created_at": "2026-11-01T10:00:00Z", "last_used_at": None,
        "expires_at": None, **fields,
    }  # fmt: skip


def one(**fields: Any) -> Step:
    return answer(200, {"success": True, "snapshot": snapshot(**fields)})


def several(*rows: dict[str, Any]) -> Step:
    return answer(200, {"success": True, "snapshots": rows})


def test_a_snapshot_is_made_as_it_is_asked_for(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [recorded(bodies, {"snapshot": snapshot()})] * 2
    assert ws.output("snapshot", "create", "box") == "before\n"
    words = ("--name", "before", "--after", "stop", "--no-memory", "--ttl", "7d", "--timeout", "9")
    assert ws.json("snapshot", "create", *words, "box")["id"] == ID
    assert bodies == [
        {"after": "resume", "ready_timeout_seconds": 600},
        {"name": "before", "after": "stop", "memory": False, "ttl": "7d", "ready_timeout_seconds": 9},
    ]
    assert {each[:2] for each in server.seen} == {("POST", "/workspace/box/snapshot")}


def test_a_snapshot_that_is_not_complete_in_time_says_where_its_state_is(server: Script, ws: Ws) -> None:
    server.steps = [answer(202, {"success": True, "snapshot": snapshot(status="creating")})]
    assert f"ws snapshot show {ID}" in ws.fails(8, "snapshot", "create", "--timeout", "1", "box")
    assert "600" in ws.fails(2, "snapshot", "create", "--timeout", "601", "box")


def test_lists_are_of_all_workspaces_or_of_one(server: Script, ws: Ws) -> None:
    server.steps = [
        several(snapshot(name=HOSTILE), snapshot(memory=False, workspace_id=None)),
        answer(200, {"workspace": workspace()}), several(snapshot()),
    ]  # fmt: skip
    _, hostile, orphan = ws.output("snapshot", "list").splitlines()
    assert not set(hostile) & {"\x1b", "\x07", "\r", "\u202e"}
    assert orphan.split("\t") == ["before", "ready", "no", "3.0 MiB", "", "2026-11-01 10:00:00", ID]
    assert ws.output("snapshot", "list", "-q", "box", "--status", "ready") == f"{ID}\n"
    assert "workspace_id=ws_1" in server.seen[-1][1]
    assert "status=ready" in server.seen[-1][1]


def test_a_snapshot_is_found_by_id_or_by_its_whole_name(server: Script, ws: Ws) -> None:
    server.steps = [
        one(usable=False, unusable_reason="The host has changed."),
        several(snapshot(id="snap_1", name="before two"), snapshot()), one(),
        several(snapshot(name="before two")),
    ]  # fmt: skip
    assert "The host has changed." in ws.output("snapshot", "show", ID)
    ws.output("snapshot", "show", "before")
    assert server.seen[-1][1] == f"/snapshots/{ID}"
    assert "ws snapshot list" in ws.fails(4, "snapshot", "show", "before")


def test_a_snapshot_gets_another_name_and_another_life(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [
        recorded(bodies, {"snapshot": snapshot(expires_at="2027-01-01")}),
        *[recorded(bodies, {"snapshot": snapshot()})] * 2,
    ]
    assert "until 2027-01-01" in ws.output("snapshot", "update", "--ttl", "7d", ID)
    assert "until it is deleted" in ws.output("snapshot", "update", "--keep", ID)
    ws.output("snapshot", "update", "--name", "after", ID)
    assert bodies == [{"ttl": "7d"}, {"ttl": None}, {"name": "after"}]
    assert "--keep" in ws.fails(2, "snapshot", "update", ID)
    assert "two" in ws.fails(2, "snapshot", "update", "--keep", "--ttl", "7d", ID)


def test_a_removal_of_several_says_how_far_it_came(server: Script, ws: Ws) -> None:
    assert "--yes" in ws.fails(2, "snapshot", "rm", ID)
    server.steps = [answer(200, {"success": True}), several()]
    assert f"{ID}: deleted. gone: not deleted." in ws.fails(4, "snapshot", "rm", "-y", ID, "gone")
    server.steps = [answer(200, {"success": True})]
    assert ws.json("snapshot", "rm", "-y", ID) == {"deleted": [ID]}


def test_a_restore_asks_and_goes_back(server: Script, ws: Ws) -> None:
    with TerminalProcess([*PROGRAM, "restore", "box"], ws.environment, (200, 30)) as terminal:
        terminal.read_until("Put box back to its newest snapshot? What was since is lost.")
        terminal.write("n\n")
        assert terminal.wait() == 1
    assert server.seen == []
    bodies: list[Any] = []
    server.steps = [recorded(bodies, {"workspace": workspace()})] * 2
    assert "box is running" in ws.output("restore", "-y", "box")
    ws.output("restore", "-y", "--snapshot", "before", "--no-memory", "box")
    assert bodies == [{}, {"snapshot": "before", "memory": False}]


def test_memory_that_does_not_fit_any_more_has_a_hint(server: Script, ws: Ws) -> None:
    details = {"differs": [{"what": "cpu", "snapshot": "a", "host": "b"}]}
    server.steps = [answer(409, {"code": "snapshot_incompatible", "message": "No.", "details": details})] * 2
    assert "--no-memory" in ws.fails(5, "restore", "-y", "box")
    error = json.loads(ws.fails(5, "create", "--snapshot", "before", "--json"))["error"]
    assert error["details"] == details


def test_a_workspace_or_a_sandbox_is_created_from_a_snapshot(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    made = {"id": "sbx_1", "name": "agent", "url": "http://x", "workspace_id": "ws_1", "token": "sbt_1"}
    server.steps = [recorded(bodies, {"workspace": workspace()}), recorded(bodies, {"sandbox": made})]
    ws.output("create", "--snapshot", "before", "--no-memory")
    ws.output("create", "--sandbox", "--snapshot", "before", "--memory")
    assert [(body["snapshot"], body["memory"]) for body in bodies] == [("before", False), ("before", True)]
    assert not any("image" in body for body in bodies)


def test_a_fork_shows_its_copies(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    entries = [{"workspace": workspace(slug=f"copy-{number}")} for number in (1, 2)]
    server.steps = [recorded(bodies, {"forks": entries})] * 2
    words = ("--count", "2", "--name", "copy", "-e", "A=1", "--memory", "--ttl", "1h")
    lines = ws.output("fork", *words, "box").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["NAME", "copy-1", "copy-2"]
    assert ws.json("fork", "--permanent", "box") == entries
    env = [{"key": "A", "value": "1"}]
    assert bodies == [
        {"count": 2, "name": "copy", "env": env, "memory": True, "ttl": "1h"}, {"count": 1, "mode": "permanent"},
    ]  # fmt: skip


@pytest.mark.parametrize("words", [["--count", "0"], ["--count", "17"], ["--permanent", "--ttl", "1h"], ["-e", "1=2"]])
def test_a_fork_that_cannot_be_is_not_sent(server: Script, ws: Ws, words: list[str]) -> None:
    ws.fails(2, "fork", *words, "box")
    assert server.seen == []


def test_a_copy_that_failed_is_named_and_the_others_are_shown(server: Script, ws: Ws) -> None:
    error = {"code": "VM_UNAVAILABLE", "message": f"It did not answer {HOSTILE}.", "details": {"id": "ws_2"}}
    body = {"success": True, "forks": [{"workspace": workspace()}, {"error": error}]}
    server.steps = [answer(201, body)] * 2
    found = ws.run("fork", "--count", "2", "box")
    assert (found.exit_code, len(found.stdout.splitlines())) == (1, 2)
    assert "ws_2 was not made: It did not answer" in found.stderr
    assert "\x1b" not in found.stderr
    as_json = ws.run("fork", "--count", "2", "--json", "box")
    assert (as_json.exit_code, json.loads(as_json.stdout)) == (1, body["forks"])


def test_tokens_of_forked_sandboxes_are_kept(server: Script, ws: Ws) -> None:
    copy = {
        "id": "sbx_2", "name": "agent-1", "url": "http://x/s/sbx_2", "workspace_id": "ws_2", "token": "sbt_2",
        "status": "active", "image": "tiny",
    }  # fmt: skip
    server.steps = [answer(201, {"success": True, "forks": [{"sandbox": copy}]})]
    text = ws.output("fork", "sbx_1")
    assert "agent-1\tactive" in text
    assert "sbt_2" not in text
    assert "sbt_2" in (ws.folder / "recent.json").read_text()
    assert server.seen[0][1] == "/sandbox/sbx_1/fork"


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["snapshot", "create", "box"], {"snapshot": snapshot()}),
        (["fork", "box"], {"forks": [{"workspace": workspace()}]}),
        (["fork", "sbx_1"], {"forks": []}),
    ],
)
def test_an_order_whose_answer_is_lost_is_sent_again_with_its_key(
    server: Script, ws: Ws, words: list[str], body: dict[str, Any]
) -> None:
    """So the service makes no second copy; another command is another order."""
    server.steps = [lost, answer(200, {"success": True, **body})] * 2
    ws.output(*words)
    ws.output(*words)
    keys = [headers["idempotency-key"] for _, _, headers in server.seen]
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_an_order_that_is_sent_again_may_have_failed_meanwhile(server: Script, ws: Ws) -> None:
    error = {"code": "VM_UNAVAILABLE", "message": "There is no room."}
    server.steps = [lost, one(status="failed", error=error)]
    text = ws.fails(1, "snapshot", "create", "box")
    assert "There is no room." in text
    assert f"ws snapshot rm {ID}" in text


def test_a_restore_whose_answer_is_lost_is_not_asked_for_twice(server: Script, ws: Ws) -> None:
    server.steps = [lost, answer(200, {})]
    ws.fails(7, "restore", "-y", "box")
    assert len(server.seen) == 1


def test_a_removal_of_a_workspace_may_keep_its_snapshots(server: Script, ws: Ws) -> None:
    steps = [answer(200, {"workspace": workspace()}), answer(200, {"success": True})]
    server.steps = [*steps, *steps]
    ws.output("rm", "-y", "--keep-snapshots", "box")
    assert server.seen[-1][:2] == ("DELETE", "/workspace/ws_1?keep_snapshots=true")
    ws.output("rm", "-y", "box")
    assert server.seen[-1][1] == "/workspace/ws_1"
