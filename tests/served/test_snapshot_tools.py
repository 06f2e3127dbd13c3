"""Snapshots, restores and forks by an agent and by the command line, on the real servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client

from tests.clients.cli.runner import Ws
from tests.served.test_mcp import answer, in_memory, refusal
from tests.vm.client import Api
from tests.vm.instances import TestInstance

IMAGE = "localhost/tiny:1"


@pytest.fixture
def credential(client: Api) -> dict[str, str]:
    headers = client.http.headers
    return {"client_id": headers["X-Client-ID"], "client_secret": headers["X-Client-Secret"]}


@pytest.fixture
def parent(client: Api) -> Iterator[str]:
    """A workspace of the test; it and its copies are deleted."""
    slug = f"parent-{os.urandom(4).hex()}"
    client.create(IMAGE, body={"name": slug})
    yield slug
    for row in client.http.get("/workspace", params={"search": slug}).json()["workspaces"]:
        client.http.delete(f"/workspace/{row['id']}")


def test_an_agent_goes_back_and_tries_two_ways_at_once(
    served: TestInstance, credential: dict[str, str], parent: str
) -> None:
    async def talk(client: Client) -> None:
        async def note(box: str, command: str = "cat note") -> str:
            ran = await answer(client, "run_command", workspace=box, command=command)
            return str(ran["stdout"]).strip()

        await note(parent, "echo first > note")
        kept = await answer(client, "create_snapshot", workspace=parent, name=f"{parent} kept", ttl="1h")
        assert (kept["status"], kept["memory"], kept["usable"]) == ("ready", True, True)
        await note(parent, "echo second > note")
        listed = await answer(client, "list_snapshots", workspace=parent)
        assert [row["id"] for row in listed["snapshots"]] == [kept["id"]]
        assert (await answer(client, "restore_workspace", workspace=parent))["status"] == "running"
        assert await note(parent) == "first"
        copies = await answer(client, "fork_workspace", workspace=parent, count=2, env={"COLOUR": "blue"})
        assert (len(copies["workspaces"]), copies["failed"]) == (2, [])
        for copy in copies["workspaces"]:
            assert await note(copy["id"], "cat note; echo $COLOUR") == "first\nblue"
        again = await answer(client, "create_workspace", name=f"{parent} again", snapshot=kept["name"], memory=False)
        assert (again["ready"], await note(again["id"])) == (True, "first")
        await answer(client, "delete_snapshot", snapshot=kept["id"])
        assert "list_snapshots" in await refusal(client, "restore_workspace", workspace=parent)
        assert (await answer(client, "list_snapshots", search=parent))["snapshots"] == []

    in_memory(served, credential, talk)


def test_the_command_line_names_snapshots_by_name_and_keeps_them(
    served: TestInstance, credential: dict[str, str], parent: str, tmp_path: Path
) -> None:
    variables = {f"MICROVM_{name.upper()}": value for name, value in credential.items()}
    ws = Ws(tmp_path / "config", {"MICROVM_URL": served.settings.base_url, **variables})
    name = f"{parent} kept"
    assert ws.output("snapshot", "create", "--name", name, "--after", "stop", parent) == f"{name}\n"
    assert ws.json("show", parent)["status"] == "stopped"
    assert "name" in ws.fails(5, "snapshot", "create", "--name", name, parent)
    assert "until it is deleted" in ws.output("snapshot", "update", "--keep", name)
    ws.output("rm", "-y", "--keep-snapshots", parent)
    assert [row["workspace_id"] for row in ws.json("snapshot", "list", "--search", name)] == [None]
    made = ws.json("create", "--wait", "--name", parent, "--snapshot", name)
    assert (made["status"], made["source_snapshot_id"]) == ("running", ws.json("snapshot", "show", name)["id"])
    ws.output("snapshot", "rm", "-y", name)
    assert "ws snapshot list" in ws.fails(4, "snapshot", "show", name)


def test_forked_sandboxes_are_reached_with_tokens_of_their_own(
    served: TestInstance, credential: dict[str, str], tmp_path: Path
) -> None:
    variables = {f"MICROVM_{name.upper()}": value for name, value in credential.items()}
    ws = Ws(tmp_path / "config", {"MICROVM_URL": served.settings.base_url, **variables})
    made = ws.json("create", "--wait", "--sandbox", "--name", "agent", "--image", IMAGE)
    (entry,) = ws.json("fork", "--name", "copy", made["id"])
    copy = entry["sandbox"]
    assert copy["token"] not in (None, made["token"])
    assert ws.json("show", "copy")["started_from"] == "fork"
    assert ws.json("snapshot", "create", "copy")["status"] == "ready"
    ws.output("rm", "-y", "copy", made["id"])
