"""The MCP server on the real servers, asked by the protocol's own client: in memory, as a process, over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from microvm.mcp_server.server import make_server
from tests.clients.cli.runner import PROGRAM, Ws
from tests.vm.client import Api
from tests.vm.instances import TestInstance

IMAGE = "localhost/tiny:1"
TOKEN = "a-token-of-the-test-0123456789"
Talk = Callable[[Client], Coroutine[Any, Any, None]]
READ_ONLY = {
    "list_workspaces", "show_workspace", "read_logs", "list_public_ports", "list_files", "read_file", "search_files",
    "list_port_links",
    "list_pages", "list_page_releases", "list_workloads", "list_images", "list_snapshots", "show_plan",
    "show_usage", "list_tasks", "read_task",
}  # fmt: skip
DESTRUCTIVE = {
    "stop_workspace", "sleep_workspace", "delete_workspace", "withdraw_port", "restart_workspace", "run_command",
    "write_file", "deploy_page", "edit_file", "resize_workspace", "stop_workload", "remove_workload",
    "restore_workspace", "delete_snapshot", "revoke_port_link",
    "start_task", "send_task_input", "stop_task",
}  # fmt: skip


@pytest.fixture
def credential(client: Api) -> dict[str, str]:
    headers = client.http.headers
    return {"client_id": headers["X-Client-ID"], "client_secret": headers["X-Client-Secret"]}


@pytest.fixture
def ws(served: TestInstance, credential: dict[str, str], tmp_path: Path) -> Ws:
    names = {"MICROVM_URL": served.settings.base_url, "MICROVM_MCP_TOKEN": TOKEN}
    client = {f"MICROVM_{name.upper()}": value for name, value in credential.items()}
    return Ws(tmp_path / "config", {**names, **client})


def in_memory(served: TestInstance, credential: dict[str, str], talk: Talk, **options: bool) -> None:
    async def run() -> None:
        async with Client(make_server(served.settings.base_url, credential, **options)) as client:
            await talk(client)

    asyncio.run(run())


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return dict(result.structured_content)


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """The text of an error, which is a sentence and no traceback."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    text = str(getattr(result.content[0], "text", ""))
    assert "Traceback" not in text
    return text


def test_every_tool_says_what_it_does(served: TestInstance, credential: dict[str, str]) -> None:
    async def talk(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {name for name, tool in tools.items() if tool.annotations.read_only_hint} == READ_ONLY
        assert {name for name, tool in tools.items() if tool.annotations.destructive_hint} == DESTRUCTIVE
        for name, tool in tools.items():
            assert len(tool.description or "") > 30, name
            assert tool.output_schema, name
            assert tool.input_schema["additionalProperties"] is False, name
            for field, schema in tool.input_schema["properties"].items():
                assert "type" in schema or "anyOf" in schema or "enum" in schema, (name, field)

    in_memory(served, credential, talk)


def test_a_read_only_server_has_no_other_tool(served: TestInstance, credential: dict[str, str]) -> None:
    async def talk(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} == READ_ONLY
        assert "delete_workspace" in await refusal(client, "delete_workspace", workspace="x")

    in_memory(served, credential, talk, read_only=True)


def test_an_agent_makes_uses_and_deletes_a_workspace(served: TestInstance, credential: dict[str, str]) -> None:
    async def talk(client: Client) -> None:
        made = await answer(client, "create_workspace", name="By agent", image=IMAGE, env={"COLOUR": "blue"})
        box = made["slug"]
        assert (made["status"], made["ready"]) == ("running", True)
        ran = await answer(client, "run_command", workspace=box, command="cat; echo $COLOUR; exit 3", stdin="in ")
        assert (ran["exit_code"], ran["stdout"], ran["truncated"]) == (3, "in blue\n", False)
        for tool, status in (
            ("sleep_workspace", "sleeping"), ("wake_workspace", "running"), ("stop_workspace", "stopped"),
        ):  # fmt: skip
            assert (await answer(client, tool, workspace=box))["status"] == status
        assert "start_workspace" in await refusal(client, "run_command", workspace=box, command="true")
        assert (await answer(client, "start_workspace", workspace=box))["status"] == "running"
        listed = await answer(client, "list_workspaces", search="by-agent")
        assert [row["slug"] for row in listed["workspaces"]] == [box]
        port = await answer(client, "publish_port", workspace=box, port=8080, label="web")
        assert (await answer(client, "list_public_ports", workspace=box))["ports"] == [port]
        assert (await answer(client, "show_workspace", workspace=box))["public_urls"] == {"8080": port["url"]}
        shut = await answer(client, "publish_port", workspace=box, port=8080, access="private")
        assert shut == port | {"access": "private"}
        link = await answer(client, "create_port_link", workspace=box, port=8080, ttl_seconds=60, label="For Alice")
        assert link["url"].startswith(f"{port['url']}/?__link=plk_")
        kept = (await answer(client, "list_port_links", workspace=box, port=8080))["links"]
        assert kept == [link | {"url": None}]
        await answer(client, "revoke_port_link", workspace=box, port=8080, link=link["id"])
        assert (await answer(client, "list_port_links", workspace=box, port=8080))["links"] == []
        await answer(client, "withdraw_port", workspace=box, port=8080)
        assert (await answer(client, "read_logs", workspace=box, lines=5))["source"] == "boot"
        await answer(client, "delete_workspace", workspace=box)
        assert "not_found" in await refusal(client, "show_workspace", workspace=box)

    in_memory(served, credential, talk)


def test_an_agent_edits_files_and_starts_what_lasts(served: TestInstance, credential: dict[str, str], box: str) -> None:
    async def talk(client: Client) -> None:
        place = {"workspace": box, "path": "/edited"}
        await answer(client, "write_file", **place, content="one two one\r\n\u00fc\n")
        assert (await answer(client, "edit_file", **place, old="two", new=""))["replaced"] == 1
        assert "2 times" in await refusal(client, "edit_file", **place, old="one", new="x")
        assert (await answer(client, "edit_file", **place, old="one", new="x", everywhere=True))["replaced"] == 2
        assert "not in the file" in await refusal(client, "edit_file", **place, old="one", new="x")
        assert (await answer(client, "read_file", **place))["content"] == "x  x\r\n\u00fc\n"
        ran = await answer(client, "run_command", workspace=box, command="printf 'a\\377'; echo text >&2")
        assert (ran["stdout"], ran["stdout_encoding"]) == ("Yf8=", "base64")
        assert (ran["stderr"], ran["stderr_encoding"]) == ("text\n", "utf-8")
        made = await answer(
            client, "add_workload", workspace=box, name="web", command=["sleep", "600"], restart="never", env={"A": "1"}
        )
        assert (made["name"], made["command"]) == ("web", ["sleep", "600"])
        assert "remove_workload" in await refusal(client, "add_workload", workspace=box, name="web", command=["x"])
        assert [row["name"] for row in (await answer(client, "list_workloads", workspace=box))["workloads"]] == ["web"]
        await answer(client, "remove_workload", workspace=box, name="web")
        assert (await answer(client, "list_workloads", workspace=box))["workloads"] == []
        assert (await answer(client, "show_plan"))["workspaces"] > 0
        assert (await answer(client, "show_usage", workspace=box))["cpu_seconds"] >= 0
        assert (await answer(client, "show_usage"))["disk_read_bytes"] >= 0
        assert "images" in await answer(client, "list_images")
        sized = await answer(client, "resize_workspace", workspace=box, memory_mb=640)
        assert sized["memory_mb"] == 640
        assert "at least one" in await refusal(client, "resize_workspace", workspace=box)

    in_memory(served, credential, talk)


def test_files_are_read_in_bounded_parts(served: TestInstance, credential: dict[str, str], box: str) -> None:
    async def talk(client: Client) -> None:
        text = "größe\n" * 10_000
        written = await answer(client, "write_file", workspace=box, path="/m/deep/text", content=text)
        assert written["size"] == len(text.encode())
        parts, offset = [], 0
        while offset is not None:
            part = await answer(client, "read_file", workspace=box, path="/m/deep/text", offset=offset, limit=9_999)
            parts.append(part["content"])
            assert part["encoding"] == "utf-8"
            offset = part["next_offset"]
        assert "".join(parts) == text
        await answer(client, "write_file", workspace=box, path="/m/raw", content="AP8=", encoding="base64")
        raw = await answer(client, "read_file", workspace=box, path="/m/raw")
        assert (raw["content"], raw["encoding"], raw["size"]) == ("AP8=", "base64", 2)
        listed = await answer(client, "list_files", workspace=box, path="/m", limit=1)
        assert ([entry["name"] for entry in listed["entries"]], listed["truncated"]) == (["deep"], True)
        found = await answer(client, "search_files", workspace=box, path="/m", query="größ", limit=3)
        assert found["matches"][0] == {"file": "/m/deep/text", "line": 1, "text": "größe"}
        assert (len(found["matches"]), found["truncated"]) == (3, True)
        assert (await answer(client, "search_files", workspace=box, path="/m", query="gr.ß"))["matches"] == []
        assert (await answer(client, "search_files", workspace=box, path="/m", query="gr.+e", regex=True))["matches"]
        assert "path_not_found" in await refusal(client, "read_file", workspace=box, path="/m/absent")
        assert "base64" in await refusal(
            client, "write_file", workspace=box, path="/m/x", content="!", encoding="base64"
        )

    in_memory(served, credential, talk)


def test_long_outputs_are_cut_and_say_so(served: TestInstance, credential: dict[str, str], box: str) -> None:
    async def talk(client: Client) -> None:
        ran = await answer(client, "run_command", workspace=box, command="echo first; yes | head -c 500000; echo last")
        assert len(ran["stdout"]) < 31_000
        assert ran["truncated"]
        assert ran["stdout"].startswith("first\n")
        assert ran["stdout"].endswith("last\n")
        assert "characters left out" in ran["stdout"]

    in_memory(served, credential, talk)


def test_pages_are_deployed_and_rolled_back(served: TestInstance, credential: dict[str, str], box: str) -> None:
    async def talk(client: Client) -> None:
        slug = f"mcp-{os.urandom(3).hex()}"
        await answer(client, "write_file", workspace=box, path="/site/index.html", content="one")
        page = await answer(client, "deploy_page", page=slug, workspace=box, folder="/site")
        assert (page["slug"], page["release"]) == (slug, 1)
        assert (await answer(client, "deploy_page", page=slug))["release"] == 2
        releases = (await answer(client, "list_page_releases", page=slug))["releases"]
        assert [(row["release"], row["live"]) for row in releases] == [(2, True), (1, False)]
        assert (await answer(client, "roll_back_page", page=slug, release=1))["release"] == 1
        assert slug in {row["slug"] for row in (await answer(client, "list_pages"))["pages"]}
        assert "both" in await refusal(client, "deploy_page", page=slug, workspace=box)

    in_memory(served, credential, talk)


def test_wrong_arguments_and_credentials_are_sentences(served: TestInstance, credential: dict[str, str]) -> None:
    async def talk(client: Client) -> None:
        assert "command" in await refusal(client, "run_command", workspace="x")
        assert "less than or equal" in await refusal(client, "list_workspaces", limit=100_000)
        assert "memory_mb" in await refusal(client, "create_workspace", image=IMAGE, memory_mb=1)

    async def refused(client: Client) -> None:
        text = await refusal(client, "list_workspaces")
        assert "log in again" in text
        assert "wrong-secret" not in text

    in_memory(served, credential, talk)
    in_memory(served, {**credential, "client_secret": "wrong-secret"}, refused)


def test_a_platform_that_is_away_is_a_sentence(credential: dict[str, str]) -> None:
    async def run() -> None:
        async with Client(make_server("http://127.0.0.1:9", credential)) as client:
            assert "does not answer" in await refusal(client, "delete_workspace", workspace="x")

    asyncio.run(run())


def test_it_serves_standard_input_and_output(ws: Ws, box: str) -> None:
    command = StdioServerParameters(command=PROGRAM[0], args=[*PROGRAM[1:], "mcp"], env=ws.environment)

    async def run() -> None:
        async with Client(command) as client:
            assert client.server_info is not None
            assert (await answer(client, "run_command", workspace=box, command="echo hi"))["stdout"] == "hi\n"

    asyncio.run(run())


@pytest.fixture
def url(ws: Ws) -> Iterator[str]:
    """Of a server as a process, on a free port."""
    process = ws.process("mcp", "--http", "--port", "0")
    assert process.stderr is not None
    try:
        assert select.select([process.stderr], [], [], 60)[0]
        line = process.stderr.readline().decode()
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", line)
        assert found, line
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
        assert TOKEN.encode() not in errors
        assert b"Traceback" not in errors


@asynccontextmanager
async def over_http(url: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


def test_it_serves_http_to_those_with_the_token(url: str, box: str) -> None:
    async def run() -> None:
        async with over_http(url) as client, over_http(url) as other:
            assert (await answer(client, "show_workspace", workspace=box))["id"] == box
            ran = await asyncio.gather(
                *(
                    answer(each, "run_command", workspace=box, command=f"echo {n}")
                    for n, each in enumerate([client, other])
                )
            )
            assert [each["stdout"] for each in ran] == ["0\n", "1\n"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "rebound.example:80"}, 421),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "https://evil.example"}, 403),
    ],
)
def test_others_are_refused(url: str, headers: dict[str, str], status: int) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **headers}
    found = httpx.post(url, content=json.dumps(body), headers=sent, trust_env=False)
    assert found.status_code == status
    assert httpx.get(url.replace("/mcp", "/"), headers=headers, trust_env=False).status_code in (401, 404)
