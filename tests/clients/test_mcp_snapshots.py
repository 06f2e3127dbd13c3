"""The tools for snapshots and forks beside a service that says what a test wants."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client

from tests.clients.cli.test_commands import HOSTILE, answer, workspace
from tests.clients.cli.test_domain_commands import recorded
from tests.clients.cli.test_snapshot_commands import ID, several, snapshot
from tests.clients.scripted_server import Script
from tests.clients.test_mcp_hostile import error_text, in_memory

COPY: dict[str, Any] = {
    **workspace(), "ready": True, "namespace": "default", "mode": "temporary", "public_ports": [],
    "info": {"error": None}, "provisioning": {"state": "ready", "progress": 100, "message": "", "error": None},
}  # fmt: skip


async def answered(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return dict(result.structured_content or {})


def test_a_fork_says_which_copies_were_not_made(server: Script) -> None:
    bodies: list[Any] = []
    error = {"code": "VM_UNAVAILABLE", "message": HOSTILE + "m" * 100_000, "details": {"id": "ws_2"}}
    server.steps = [recorded(bodies, {"forks": [{"workspace": COPY}, {"error": error}]})]

    async def talk(client: Client) -> None:
        found = await answered(client, "fork_workspace", workspace="box", count=2, env={"A": "1"}, memory=True)
        assert [row["id"] for row in found["workspaces"]] == ["ws_1"]
        (failed,) = found["failed"]
        assert (failed["workspace_id"], failed["code"]) == ("ws_2", "VM_UNAVAILABLE")
        assert len(failed["message"]) < 5000

    in_memory(server, talk)
    assert bodies == [{"count": 2, "env": [{"key": "A", "value": "1"}], "memory": True}]


def test_a_list_of_snapshots_is_bounded_and_says_so(server: Script) -> None:
    server.steps = [several(*[snapshot()] * 3), several(snapshot())]

    async def talk(client: Client) -> None:
        found = await answered(client, "list_snapshots", limit=2)
        assert (len(found["snapshots"]), found["truncated"]) == (2, True)
        found = await answered(client, "list_snapshots", workspace="box")
        assert ([row["id"] for row in found["snapshots"]], found["truncated"]) == ([ID], False)

    in_memory(server, talk)
    assert [each[1].partition("?")[0] for each in server.seen] == ["/snapshots", "/workspace/box/snapshots"]


def test_a_restore_and_a_create_name_a_snapshot(server: Script) -> None:
    bodies: list[Any] = []
    made = {"workspace": COPY}
    server.steps = [recorded(bodies, made), recorded(bodies, made), answer(200, made)]

    async def talk(client: Client) -> None:
        await answered(client, "restore_workspace", workspace="box", snapshot="before", memory=False)
        await answered(client, "create_workspace", snapshot="before")

    in_memory(server, talk)
    assert bodies == [{"snapshot": "before", "memory": False}, {"snapshot": "before", "wait_ready": False}]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("SNAPSHOT_LIMIT_REACHED", "delete_snapshot"), ("snapshot_incompatible", "memory false"),
        ("snapshot_not_ready", "list_snapshots"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do(server: Script, code: str, hint: str) -> None:
    server.steps = [answer(409, {"code": code, "message": "No."})]

    async def talk(client: Client) -> None:
        assert hint in await error_text(client, "restore_workspace", workspace="box")

    in_memory(server, talk)


def test_a_model_cannot_ask_for_too_many_copies(server: Script) -> None:
    async def talk(client: Client) -> None:
        assert await error_text(client, "fork_workspace", workspace="box", count=17)
        assert await error_text(client, "list_snapshots", limit=10**9)

    in_memory(server, talk)
    assert server.seen == []
