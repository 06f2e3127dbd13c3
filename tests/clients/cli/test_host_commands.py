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
    for act, state in (("drain", "draining"), ("maintenance", "maintenance"), ("activate", "active")):
        bodies: list[Any] = []
        server.steps = [several(host()), recorded(bodies, {"host": host(state=state)})]
        assert ws.output("hosts", act, "two", "--reason", "a disk") == f"two is {state}.\n"
        assert bodies == [{"reason": "a disk"}]
        assert "--reason" in ws.fails(2, "hosts", act, "two")


def test_what_cannot_be_undone_is_confirmed(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [several(host()), one(), several(host()), one(), recorded(bodies, {"host": host(state="gone")})]
    assert "--yes" in ws.fails(2, "hosts", "give-up", "two", "--reason", "fire")
    assert ws.output("hosts", "give-up", "two", "--reason", "fire", "--yes") == "two is gone.\n"
    assert bodies == [{"reason": "fire", "confirm": "two"}]
    server.steps = [several(host()), answer(200, {"success": True, "message": "The host was removed."})]
    assert ws.output("hosts", "rm", "two", "--reason", "sold", "--yes") == "Removed the host two.\n"


def test_a_token_of_staff_is_a_profile(server: Script, ws: Ws) -> None:
    server.steps = [several()]
    ws.output("login", "staff", "--url", server.url, "--token-stdin", stdin="stf_a-token\n")
    assert server.seen[-1][1].startswith("/staff/hosts?")
