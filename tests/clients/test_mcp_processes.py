"""Processes of `ws mcp`: odd requests and input, secrets, signals."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.cli.runner import Ws
from tests.clients.cli.test_commands import answer
from tests.clients.scripted_server import Script, ScriptedRequest

TOKEN = "a-token-of-the-test-0123456789"


@pytest.fixture
def ws(server: Script, tmp_path: Path) -> Ws:
    names = {"MICROVM_URL": server.url, "MICROVM_CLIENT_ID": "c", "MICROVM_CLIENT_SECRET": "quinine"}
    return Ws(tmp_path / "config", {**names, "MICROVM_MCP_TOKEN": TOKEN})


@contextmanager
def serving(ws: Ws) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """`ws mcp --http` at a free port."""
    with ws.process("mcp", "--http", "--port", "0") as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline().decode()
            yield int(line.rpartition(":")[2].partition("/")[0]), process
        finally:
            process.terminate()


def status_of(port: int, request: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        return int(connection.makefile("rb").readline().split()[1])


def test_odd_requests_are_refused_and_nothing_is_logged_of_them(ws: Ws) -> None:
    with serving(ws) as (port, process):
        host = b"Host: 127.0.0.1:%d\r\n" % port
        token = f"Authorization: Bearer {TOKEN}\r\n".encode()
        json_type = b"Content-Type: application/json\r\n"
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        upgrade += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        found = [
            status_of(port, line + host + headers + b"\r\n")
            for line, headers in [
                (b"GET /mcp HTTP/1.1\r\n", upgrade),
                (b"GET /mcp HTTP/1.1\r\n", upgrade + token),
                (b"POST /mcp HTTP/1.1\r\n", token * 2 + b"Content-Length: 0\r\n"),
                (b"DELETE /mcp HTTP/1.1\r\n", b"Mcp-Session-Id: another\r\n"),
                (b"DELETE /mcp HTTP/1.1\r\n", token + b"Mcp-Session-Id: another\r\n"),
                (
                    b"POST /mcp HTTP/1.1\r\n",
                    token + json_type + b"Content-Length: 99999999999\r\n",
                ),
            ]
        ]
        assert found[0] == found[2] == found[3] == 401
        assert found[5] == 413
        assert all(400 <= status < 500 for status in found)
        process.terminate()
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert "Traceback" not in said
    assert TOKEN not in said
    assert "quinine" not in said


def test_standard_output_has_the_protocol_alone_and_the_end_of_input_ends_it(ws: Ws) -> None:
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    ws.variables["PYTHONWARNINGS"] = "always"
    process = ws.process("mcp", stdin=subprocess.PIPE)
    lines = [b"no json", b"\xff\xfe", b"[" * 50_000, json.dumps(hello).encode()]
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"".join(line + b"\n" for line in lines))
    process.stdin.flush()
    answers = []
    while not any(each.get("id") == 1 for each in answers):
        answers.append(json.loads(process.stdout.readline()))
    rest = process.communicate(timeout=30)[0]
    assert all(each["jsonrpc"] == "2.0" for each in [*answers, *map(json.loads, rest.splitlines())])
    assert process.returncode == 0


def test_no_secret_is_in_an_answer_or_in_a_log(server: Script, ws: Ws) -> None:
    """Also where the service repeats what it was sent, and answers what nothing expects."""

    def mirror(request: ScriptedRequest) -> None:
        sent = " ".join(request.headers.values())
        content = json.dumps({"code": "odd", "message": f"sent: {sent}"[:20]}).encode()
        request.answer(400, {"Content-Length": str(len(content)), "X-Mirror": sent}, content)

    server.steps = [mirror, answer(200, {"workspace": {"odd": 1}}), answer(200, b"<html>"), answer(401, {})]
    ws.variables["MICROVM_DEBUG"] = "1"
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"name": "show_workspace", "arguments": {"workspace": "box"}}
    messages = [{"id": 0, "method": "initialize", "params": hello}, {"method": "notifications/initialized"}]
    messages += [{"id": n, "method": "tools/call", "params": call} for n in range(1, 5)]
    process = ws.process("mcp", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for message in messages:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()
        if "id" in message:
            answers.append(process.stdout.readline())
    output, errors = process.communicate(timeout=30)
    assert len(server.seen) == 4
    assert sum(b'"isError":true' in each.replace(b" ", b"") for each in answers) == 4
    assert b"quinine" not in b"".join(answers) + output + errors


def test_a_signal_ends_it_although_it_reads_standard_input(ws: Ws) -> None:
    read, write = os.pipe()
    process = ws.process("mcp", stdin=read)
    os.close(read)
    os.write(write, b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert process.stdout is not None
    assert process.stdout.readline()
    process.terminate()
    assert process.wait(120) == -15
    os.close(write)
