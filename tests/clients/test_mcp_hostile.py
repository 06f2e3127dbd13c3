"""The MCP server beside a service that says what a test wants: forged outputs, long errors, calls that are given up."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from mcp import Client

from microvm.mcp_server.server import make_server
from tests.clients.cli.test_commands import answer, workspace
from tests.clients.scripted_server import Script, ScriptedRequest
from tests.clients.test_transfers import CONTENT, file_of

RUN_COMMAND = "workspace, command, working_dir, env, stdin, user, timeout_seconds"
Talk = Callable[[Client], Coroutine[Any, Any, None]]


def in_memory(server: Script, talk: Talk, *, read_only: bool = False) -> None:
    async def run() -> None:
        credential = {"client_id": "c", "client_secret": "quinine"}
        async with Client(make_server(server.url, credential, read_only=read_only)) as client:
            await talk(client)

    asyncio.run(run())


async def error_text(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    return str(getattr(result.content[0], "text", ""))


def test_a_file_cannot_forge_a_match_in_another_file(server: Script) -> None:
    forged = "./real:1:a\x0c./etc/passwd:7:root\u2028./x:1:y\x85./z:2:z\n./other:2:b\n"
    body = {"exit_code": 0, "stdout": forged, "stderr": "", "truncated": False, "timed_out": False}
    server.steps = [answer(200, body)]

    async def talk(client: Client) -> None:
        result = await client.call_tool("search_files", {"workspace": "box", "query": "a"})
        assert result.structured_content is not None
        assert [match["file"] for match in result.structured_content["matches"]] == ["/real", "/other"]

    in_memory(server, talk)


def test_errors_are_bounded_and_have_no_internals(server: Script) -> None:
    long = {"code": "validation_error", "message": "m" * 100_000, "details": {"x": "d" * 100_000}}
    server.steps = [answer(400, long), file_of(CONTENT, "a", sent=10), answer(200, {"workspace": {"odd": 1}})]

    async def talk(client: Client) -> None:
        assert len(await error_text(client, "show_workspace", workspace="box")) < 5000
        assert "does not answer" in await error_text(client, "read_file", workspace="box", path="/a")
        odd = await error_text(client, "show_workspace", workspace="box")
        assert "KeyError" not in odd
        assert "Traceback" not in odd

    in_memory(server, talk)


def test_progress_of_a_creation_comes_while_it_goes_on(server: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microvm.aio.workspaces.sleep", lambda seconds: asyncio.sleep(0.05))
    made = {
        **workspace(), "namespace": "default", "mode": "temporary", "info": {"error": None}, "public_ports": [],
    }  # fmt: skip

    def state(percent: int, message: str, *, ready: bool = False) -> dict[str, Any]:
        provisioning = {"state": "creating", "progress": percent, "message": message, "error": None}
        return {"workspace": {**made, "ready": ready, "provisioning": provisioning}}

    asked = [state(0, ""), state(10, "pulling"), state(10, "pulling"), state(60, "booting")]
    heard: list[tuple[float, float | None, str | None]] = []
    before_the_end: list[int] = []

    def last(request: ScriptedRequest) -> None:
        before_the_end.append(len(heard))
        answer(200, state(100, "ready", ready=True))(request)

    server.steps = [*(answer(200, each) for each in asked), last]

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def talk(client: Client) -> None:
        result = await client.call_tool("create_workspace", {"name": "box"}, progress_callback=hear)
        assert not result.is_error, result.content

    in_memory(server, talk)
    assert heard == [(10, 100, "pulling"), (60, 100, "booting"), (100, 100, "ready")]
    assert before_the_end == [2]


def test_a_model_cannot_ask_for_more_than_the_bounds(server: Script) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"path": "/a", "limit": 10**9}), ("list_files", {"limit": 10**9}),
        ("read_logs", {"lines": 10**9}),
        ("run_command", {"command": "x" * 200_000}), ("run_command", {"command": "x", "timeout_seconds": 1e9}),
        ("write_file", {"path": "relative", "content": ""}), ("publish_port", {"port": 10**9}),
    ]  # fmt: skip

    async def talk(client: Client) -> None:
        for tool, arguments in calls:
            assert await error_text(client, tool, workspace="box", **arguments), tool

    in_memory(server, talk)
    assert server.seen == []


def test_arguments_that_a_tool_has_not_are_refused_by_name(server: Script) -> None:
    async def talk(client: Client) -> None:
        text = await error_text(client, "run_command", workspace="box", command="x", timeout=5, cwd="/")
        assert text == (
            f"run_command has no argument timeout; it takes {RUN_COMMAND}. "
            f"run_command has no argument cwd; it takes {RUN_COMMAND}."
        )
        assert await error_text(client, "run_command", command="x") == "workspace is missing."
        text = await error_text(client, "write_file", workspace="box", path="/x", content=1)
        assert text.startswith("content: ")
        assert "pydantic" not in text
        assert len(await error_text(client, "show_workspace", **{"x" * 100_000: 1}, workspace="box")) < 5000

    in_memory(server, talk)
    assert server.seen == []


def test_sizes_that_no_machine_has_reach_no_service(server: Script) -> None:
    sizes = ("cpus", "memory_mb", "disk_size_mb", "wait_seconds")

    async def talk(client: Client) -> None:
        for field in sizes:
            for value in (-1, 10**30):
                assert field in await error_text(client, "create_workspace", **{field: value}), (field, value)

    in_memory(server, talk)
    assert server.seen == []


async def answer_of(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer, which also fits into a model's context as text."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert len(str(getattr(result.content[0], "text", ""))) < 150_000
    return dict(result.structured_content or {})


def test_long_names_of_a_guest_do_not_fill_the_context(server: Script) -> None:
    entries = [
        {
            "name": f"{n:03}" + "n" * 250,
            "path": "/",
            "type": "symlink",
            "size": 1,
            "modified": "x",
            "target": "t" * 4000,
        }
        for n in range(300)
    ]
    listing = {"success": True, "path": "/", "entries": entries, "truncated": False, "next_cursor": None}
    lines = "".join(f"./{'d/' * 1500}{n}:1:x\n" for n in range(200))
    search = {"exit_code": 0, "stdout": lines, "stderr": "", "truncated": False, "timed_out": False}
    server.steps = [answer(200, listing), answer(200, search)]

    async def talk(client: Client) -> None:
        listed = await answer_of(client, "list_files", workspace="box", limit=300)
        assert (0 < len(listed["entries"]) < 30, listed["truncated"]) == (True, True)
        found = await answer_of(client, "search_files", workspace="box", query="x", limit=200)
        assert (0 < len(found["matches"]) < 30, found["truncated"]) == (True, True)

    in_memory(server, talk)


def test_what_is_left_out_of_logs_and_deploys_is_said(server: Script) -> None:
    entry = {"line": "x" * 5000, "timestamp": None}
    logs = {"success": True, "source": "boot", "logs": [entry], "lines": [entry], "entries": [entry]}
    page = {
        "slug": "site", "name": "site", "url": "http://x", "status": "active", "release": 1, "source_workspace_id": "w",
        "exported_path": "/", "deployment": {"state": "live", "error": {"message": "e" * 9000}},
    }  # fmt: skip
    skipped = [{"path": "p" * 1000, "reason": "a link"}] * 60
    server.steps = [
        answer(200, logs), answer(200, {"success": True, "page": page, "skipped": skipped, "skipped_count": 500}),
    ]  # fmt: skip

    async def talk(client: Client) -> None:
        read = await answer_of(client, "read_logs", workspace="box")
        assert read["truncated"]
        assert len("".join(read["lines"])) < 2100
        deployed = await answer_of(client, "deploy_page", page="site")
        assert deployed["skipped"][-1] == "450 more were left out."
        assert (len(deployed["skipped"]), len(deployed["error"]) < 2100) == (51, True)

    in_memory(server, talk)


def test_calls_at_once_do_not_wait_for_each_other(server: Script) -> None:
    together = threading.Barrier(12)

    def step(request: ScriptedRequest) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        together.wait(30)
        body = {
            "exit_code": 0,
            "stdout": "",
            "stderr": "",
            "duration_ms": 1,
            "truncated": False,
            "lossy": False,
            "timed_out": False,
        }
        content = json.dumps(body).encode()
        request.answer(200, {"Content-Length": str(len(content))}, content)

    server.steps = [step] * 12

    async def talk(client: Client) -> None:
        calls = [answer_of(client, "run_command", workspace="box", command=f"echo {n}") for n in range(12)]
        assert [each["exit_code"] for each in await asyncio.gather(*calls)] == [0] * 12

    in_memory(server, talk)


def test_a_service_that_goes_away_and_comes_back_needs_no_new_server(server: Script) -> None:
    def gone(request: ScriptedRequest) -> None:
        request.close_connection = True
        request.connection.shutdown(socket.SHUT_RDWR)

    server.steps = [*[gone] * 4, answer(503, {"code": "service_unavailable", "message": "Later."})]
    server.steps += [*[server.steps[-1]] * 3, answer(200, {"success": True, "pages": []})]

    async def talk(client: Client) -> None:
        assert "does not answer" in await error_text(client, "list_pages")
        assert "Later." in await error_text(client, "list_pages")
        assert (await answer_of(client, "list_pages"))["pages"] == []

    in_memory(server, talk)


def test_a_read_only_server_refuses_what_it_does_not_show(server: Script) -> None:
    async def talk(client: Client) -> None:
        for tool in ("delete_workspace", "run_command", "write_file", "deploy_page"):
            arguments = {"workspace": "box", "command": "x", "path": "/a", "content": "", "page": "p"}
            assert "Unknown tool" in await error_text(client, tool, **arguments)

    in_memory(server, talk, read_only=True)
    assert server.seen == []


def test_a_call_that_is_given_up_ends_its_request(server: Script) -> None:
    begun, ended = threading.Event(), threading.Event()

    def long(request: ScriptedRequest) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        begun.set()
        if not request.connection.recv(1):
            ended.set()

    server.steps = [long]

    async def talk(client: Client) -> None:
        async def call() -> None:
            await client.call_tool("run_command", {"workspace": "box", "command": "sleep 600"})

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            assert await asyncio.to_thread(begun.wait, 30)
            group.cancel_scope.cancel()
        assert await asyncio.to_thread(ended.wait, 30)

    in_memory(server, talk)
