"""`ws hosts`, of staff, beside a server that says what a test wants."""

from __future__ import annotations

from typing import Any

from tests.clients.cli.runner import Ws
from tests.clients.cli.test_commands import answer
from tests.clients.cli.test_domain_commands import recorded
from tests.clients.scripted_server import Script, Step

ID = "host_abcdefghijklmnop"


def host(**fields: Any) -> dict[str, Any]:
    return {
        "id": ID, "name": "two", "state": "active", "state_since": "2026-11-01T10:00:00Z", "address": "10.0.0.2",
        "machines": {"running": 3, "sleeping": 1, "stopped": 0}, "memory_mb": 4096, "memory_promised_mb": 1024,
        "disk_free_mb": 9000, "problem": None, "labels": {"disk": "nvme"}, "zone": "a", "subnet": "10.130.0.0/20",
        "snapshots_bytes": 0, "orphans": [], "would": {"lost": 4}, "last_seen_at": None, **fields,
    }  # fmt: skip


def several(*rows: dict[str, Any]) -> Step:
    return answer(200, {"success": True, "hosts": rows, "total": len(rows), "page": 1, "limit": 20})


def one(**fields: Any) -> Step:
    return answer(200, {"success": True, "host": host(**fields)})


def test_hosts_are_listed_and_shown_by_name(server: Script, ws: Ws) -> None:
    server.steps = [several(host()), several(host(name="other"), host()), one()]
    assert "1024 of 4096 MiB" in ws.output("hosts", "list", "--label", "disk=nvme")
    assert "disk=nvme" in ws.output("hosts", "show", "two")
    assert server.seen[-1][:2] == ("GET", f"/staff/hosts/{ID}")


def test_a_host_that_there_is_not_is_a_sentence(server: Script, ws: Ws) -> None:
    server.steps = [several(host(name="two-and-more"))]
    assert "There is no host two." in ws.fails(4, "hosts", "show", "two")


def test_a_token_is_the_line_for_the_other_machine(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [recorded(bodies, {"token": "join_x", "command": "make join X", "expires_at": "2026-11-01"})]
    assert ws.output("hosts", "token", "--name", "two", "--ttl", "60") == "make join X\n"
    assert bodies == [{"name": "two", "ttl_seconds": 60}]


def test_states_are_set_with_a_reason(server: Script, ws: Ws) -> None:
    for act, state in (("maintenance", "maintenance"), ("activate", "active")):
        bodies: list[Any] = []
        server.steps = [several(host()), recorded(bodies, {"host": host(state=state)})]
        assert ws.output("hosts", act, "two", "--reason", "a disk") == f"two is {state}.\n"
        assert bodies == [{"reason": "a disk"}]
        assert "--reason" in ws.fails(2, "hosts", act, "two")


def test_a_host_is_drained_as_asked(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    shown = {"host": "two", "state": "draining", "workspaces_left": 3, "moves": 0, "refusals": []}
    server.steps = [several(host()), recorded(bodies, {"drain": shown, "host": host()})] * 2
    assert ws.output("hosts", "drain", "two", "--reason", "a disk") == "two is draining, with 3 workspaces left.\n"
    ws.output("hosts", "drain", "two", "--reason", "a disk", "--wait", "--deadline", "60", "--drop-memory")
    assert bodies == [
        {"reason": "a disk", "running": "move", "memory": "keep"},
        {"reason": "a disk", "running": "wait", "memory": "drop", "deadline_seconds": 60},
    ]
    assert "--reason" in ws.fails(2, "hosts", "drain", "two")


def test_a_workspace_is_moved_and_a_move_cancelled(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    move = {"workspace_id": "ws_a", "from": "one", "to": "two", "state": "queued", "step": "reserve"}
    server.steps = [recorded(bodies, {"operation": move}), answer(202, {"success": True, "operation": move})]
    text = "The move of ws_a from one to two is queued (reserve).\n"
    assert ws.output("hosts", "move", "ws_a", "--to", "two", "--no-memory", "--reason", "hot") == text
    assert bodies == [{"reason": "hot", "memory": False, "to": "two"}]
    assert ws.output("hosts", "cancel-move", "ws_a") == text


def test_what_cannot_be_undone_is_confirmed(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [several(host()), one(), several(host()), one(), recorded(bodies, {"host": host(state="gone")})]
    assert "--yes" in ws.fails(2, "hosts", "give-up", "two", "--reason", "fire")
    assert ws.output("hosts", "give-up", "two", "--reason", "fire", "--yes") == "two is gone.\n"
    assert bodies == [{"reason": "fire", "confirm": "two"}]
    server.steps = [several(host()), answer(200, {"success": True, "message": "The host was removed."})]
    assert ws.output("hosts", "rm", "two", "--reason", "sold", "--yes") == "Removed the host two.\n"


def orphan(**fields: Any) -> dict[str, Any]:
    return {
        "workspace_id": "ws_a", "workspace_status": "lost", "workspace_epoch": 3, "epoch": 2, "name": "ws_a.2.5",
        "kept_since": 5.0, "size_bytes": 2048, **fields,
    }  # fmt: skip


def test_what_a_host_has_kept_is_listed(server: Script, ws: Ws) -> None:
    kept = [orphan(), orphan(workspace_id="ws_b", workspace_status=None)]
    server.steps = [several(host()), answer(200, {"success": True, "orphans": kept})]
    shown = ws.output("hosts", "orphans", "two")
    assert server.seen[-1][:2] == ("GET", f"/staff/hosts/{ID}/orphans")
    for text in ("ws_a", "lost", "ws_b", "deleted", "1970-01-01T00:00:05+00:00", "ws_a.2.5"):
        assert text in shown


def test_what_a_host_has_kept_is_put_back_with_a_reason(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    made = {"workspace_id": "ws_a", "status": "stopped", "host": "two", "ip": "10.130.0.9", "epoch": 4}
    server.steps = [several(host()), recorded(bodies, made)]
    shown = ws.output("hosts", "orphans", "two", "--put-back", "ws_a", "--reason", "it is back")
    assert shown == "ws_a is stopped on two, with its files.\n"
    assert server.seen[-1][:2] == ("POST", f"/staff/hosts/{ID}/orphans/ws_a/put-back")
    assert bodies == [{"reason": "it is back"}]


def test_what_a_host_has_kept_is_removed_once_it_is_confirmed(server: Script, ws: Ws) -> None:
    server.steps = [several(host())] * 2 + [answer(200, {"success": True, "removed": ["ws_a.2.5"]})]
    delete = ("hosts", "orphans", "two", "--delete", "ws_a", "--reason", "why")
    assert "--yes" in ws.fails(2, *delete)
    assert ws.output(*delete, "--yes") == "Removed ws_a.2.5.\n"
    assert server.seen[-1][:2] == ("DELETE", f"/staff/hosts/{ID}/orphans/ws_a?reason=why")


def test_one_act_at_a_time_and_none_without_a_reason(server: Script, ws: Ws) -> None:
    both = ("--put-back", "ws_a", "--delete", "ws_b", "--reason", "why", "--yes")
    for words in (("--put-back", "ws_a"), ("--delete", "ws_a", "--yes"), both):
        ws.fails(2, "hosts", "orphans", "two", *words)
    assert server.seen == []


def test_a_token_of_staff_is_a_profile(server: Script, ws: Ws) -> None:
    server.steps = [several()]
    ws.output("login", "staff", "--url", server.url, "--token-stdin", stdin="stf_a-token\n")
    assert server.seen[-1][1].startswith("/staff/hosts?")
