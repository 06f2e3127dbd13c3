"""What an account has, spends and may, calls of any route, and what is said to users about limits."""

from __future__ import annotations

import json
import signal
import threading
from typing import Any

import pytest

from tests.clients.cli.runner import Ws
from tests.clients.cli.test_commands import answer, lost, workspace
from tests.clients.cli.test_programs import seen_body
from tests.clients.scripted_server import Script, ScriptedRequest

QUOTA = {
    "planLabel": "Team", "maxSandboxes": 5, "currentSandboxes": 2, "reason": None,
    **{name: {"cpus": 4, "memory_mb": 8192, "disk_size_mb": 20480}
       for name in ("limits", "pool", "pool_usage", "running_pool", "running_pool_usage")},
}  # fmt: skip
TOTALS = {
    "total_cpu_time_ns": 1500000000, "total_disk_read": 2048, "total_disk_write": 0, "total_net_rx": 0,
    "total_net_tx": 0,
}  # fmt: skip


def test_whoami_says_address_credential_and_plan(server: Script, ws: Ws) -> None:
    server.steps = [answer(200, QUOTA), answer(403, {"code": "forbidden", "message": "No."})]
    text = ws.output("whoami")
    assert server.url in text
    assert "Team" in text
    assert "2 of 5" in text
    assert "4 CPUs, 8192 MiB of memory" in text
    assert ws.json("whoami")["quota"] is None


def test_credits_are_shown_without_a_quota(server: Script, ws: Ws) -> None:
    spent = {"service": "sandbox", "credits": 1.5, "requests": 3, "percent": 100}
    quota = {"service": "ai", "quota_used": 2, "quota_limit": 8}
    listed = {"data": [{"namespace": "default", "status": "active", "quotas": [quota]}]}
    detail = {"data": {"namespace": "default", "status": "active", "quotas": [quota], "services": [spent]}}
    server.steps = [answer(200, listed), answer(200, detail)]
    lines = [line.split("\t") for line in ws.output("credits").splitlines()]
    assert lines[1:] == [["default", "ai", "", "2.00", "8.00", "25 %"], ["default", "sandbox", "1.50", "", "none", ""]]
    assert "days=30" in server.seen[1][1]


def test_usage_images_names_and_ids_are_shown(server: Script, ws: Ws) -> None:
    image = {
        "image": "docker.io/library/redis:7",
        "preset": "redis",
        "label": "Redis",
        "category": "db",
        "vm_defaults": {"memory_mb": 256},
    }
    server.steps = [
        answer(200, {"usage": {"ws_1": TOTALS}, "total": TOTALS}), answer(200, {"usage": TOTALS}),
        answer(200, {"images": [image], "categories": []}),
        answer(200, {"workspaces": [workspace(), workspace(id="ws_2")]}),
        answer(200, {"workspace": workspace(name="New one")}),
        answer(200, {"workspace": workspace(status="paused")}), answer(200, {"workspace": workspace()}),
    ]  # fmt: skip
    assert [line.split("\t")[:2] for line in ws.output("usage").splitlines()[1:]] == [
        ["ws_1", "1.5 s"],
        ["all", "1.5 s"],
    ]
    assert ws.output("usage", "box").splitlines()[1].startswith("box\t1.5 s\t2.0 KiB")
    assert "docker.io/library/redis:7\tredis\tRedis\tdb\t256 MiB" in ws.output("images")
    assert ws.output("list", "-q") == "ws_1\nws_2\n"
    assert ws.output("rename", "box", "New one") == "box is named New one.\n"
    assert ws.output("pause", "box") == "box is paused.\n"
    assert ws.output("resume", "box") == "box is running.\n"


def test_any_route_can_be_called(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [answer(200, {"a": 1}), seen_body(bodies, answer(201, {"b": 2})), answer(404, {"code": "not_found"})]
    assert json.loads(ws.output("api", "get", "/workspace?limit=5&status=running")) == {"a": 1}
    assert json.loads(ws.output("api", "POST", "/x", "-d", "-", stdin='{"c": 3}')) == {"b": 2}
    ws.fails(4, "api", "DELETE", "/x")
    assert [(method, path) for method, path, _ in server.seen] == [
        ("GET", "/workspace?limit=5&status=running"), ("POST", "/x"), ("DELETE", "/x"),
    ]  # fmt: skip
    assert bodies == [{"c": 3}]
    for words in (
        ["GET", "http://elsewhere/x"],
        ["GET", "//elsewhere/x"],
        ["GET", "x"],
        ["POST", "/x", "-d", "[]"],
        ["EAT", "/x"],
    ):
        ws.fails(2, "api", *words)
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("status", "body", "code", "hint"),
    [
        (409, {"code": "guest_disk_full", "message": "Full."}, 5, "ws resize --disk"),
        (402, {"code": "SANDBOX_LIMIT_REACHED", "message": "Reached."}, 6, "ws whoami"),
        (402, {"code": "RUNNING_POOL_REACHED", "message": "Full."}, 6, "ws stop"),
        (403, {"code": "RESOURCE_NOT_ALLOWED", "message": "Above."}, 6, "ws whoami"),
        (409, {"code": "NAMESPACE_LIMIT_REACHED", "message": "Reached."}, 6, "--namespace"),
        (404, {"code": "not_found", "message": "There is no namespace 'x'."}, 4, "ws credits"),
    ],
)
def test_a_limit_says_what_helps(server: Script, ws: Ws, status: int, body: Any, code: int, hint: str) -> None:
    server.steps = [answer(status, body)]
    text = ws.fails(code, "create", "--namespace", "x")
    assert hint in text.partition("Hint: ")[2]


def test_a_sentence_is_said_once(server: Script, ws: Ws) -> None:
    again = {"cpus": ["The plan allows 4."], "name": ["Too long."]}
    body = {"code": "validation_error", "message": "cpus: The plan allows 4.", "details": again}
    failed = {
        "state": "failed",
        "phase": "failed",
        "progress": 1,
        "message": "No such image.",
        "error": {"message": "No such image."},
    }
    server.steps = [
        answer(400, body), answer(201, {"workspace": workspace()}),
        answer(200, {"workspace": workspace(ready=False, provisioning=failed)}),
    ]  # fmt: skip
    text = ws.fails(2, "create")
    assert text.count("The plan allows 4.") == 1
    assert "name: Too long." in text
    assert ws.fails(1, "create", "--wait").count("No such image.") == 1


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_creation_that_is_left_says_what_goes_on_and_how_it_is_removed(
    server: Script, ws: Ws, *, is_ordered: bool
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def waiting(request: ScriptedRequest) -> None:
        begun.set()
        ended.wait(60)

    server.steps = [answer(201, {"workspace": workspace()}), waiting] if is_ordered else [waiting]
    process = ws.process("create", "--wait")
    assert begun.wait(60)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1].decode()
    ended.set()
    assert process.returncode == 130
    assert ("ws rm box" if is_ordered else "ws rm") in errors
    assert ("box is still being created" if is_ordered else "may be created all the same") in errors


def test_a_wait_goes_on_when_the_service_is_back(server: Script, ws: Ws) -> None:
    made = workspace(ready=True, provisioning={"state": "ready", "phase": "x", "progress": 100, "message": "Booting"})
    away = answer(502, {"code": "bad_gateway", "message": "Away."})
    server.steps = [answer(201, {"workspace": made}), *[lost, away] * 4, answer(200, {"workspace": made})]
    found = ws.run("create", "--wait")
    assert (found.exit_code, found.stdout) == (0, "box\n")
    assert found.stderr.count("The service does not answer") == 1


def test_a_followed_log_goes_on_when_the_service_is_back(server: Script, ws: Ws) -> None:
    def stream(*lines: str) -> Any:
        events = "".join(f"id: {n}\ndata: {json.dumps({'line': line})}\nretry: 10\n\n" for n, line in enumerate(lines))

        def step(request: ScriptedRequest) -> None:
            request.answer(200, {"Content-Type": "text/event-stream", "Content-Length": "99999"}, events.encode())

        return step

    server.steps = [answer(200, {"workspace": workspace()}), stream("one"), *[lost] * 7, stream("two")]
    found = ws.run("logs", "-f", "box")  # the last answer is a 404: what was followed is deleted
    assert (found.exit_code, found.stdout) == (0, "one\ntwo\n")
    assert server.seen[-1][2]["last-event-id"] == "0"
