"""Answers of the edge itself when a server is restarting or away."""

from __future__ import annotations

import threading
import time

import httpx
import pytest

from supervise.instance import Instance
from tests.commands.test_edge import edge

__all__ = ["edge"]  # fixtures


def test_a_request_waits_for_a_restarting_server(edge: tuple[Instance, str]) -> None:
    instance, base = edge
    socket = instance.run_dir / "api.sock"
    moved = socket.with_name("moved.sock")
    socket.rename(moved)
    threading.Timer(1.5, lambda: moved.rename(socket)).start()
    started = time.monotonic()
    assert httpx.get(base + "/workspace", timeout=120).json()["server"] == "api"
    assert time.monotonic() - started > 1


def test_an_unavailable_server_is_reported_in_the_error_envelope(edge: tuple[Instance, str]) -> None:
    instance, base = edge
    socket = instance.run_dir / "api.sock"
    away = socket.rename(socket.with_name("away.sock"))
    try:
        answer = httpx.get(base + "/workspace", headers={"X-Request-ID": "mine-1"}, timeout=120)
    finally:
        away.rename(socket)
    body = answer.json()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert body["success"] is False
    assert body["error"] == body["code"] == "service_unavailable"
    assert body["request_id"] == answer.headers["x-request-id"] == "mine-1"
    assert httpx.get(base + "/s/sbx_1/x").json()["server"] == "streams"


@pytest.mark.parametrize("before", [[], ["fine"], ["x" * 128]])
def test_a_request_id_cannot_inject_json_into_the_envelope(edge: tuple[Instance, str], before: list[str]) -> None:
    _, base = edge
    sent = [*before, 'a","success":true,"b":"']
    answer = httpx.get(base + "/internal/x", headers=[("X-Request-ID", value) for value in sent])
    assert answer.json()["success"] is False
    assert set(answer.json()) == {"success", "error", "code", "message", "request_id"}
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "sent", ["mine-1", "!~{}$&'()*,;<>?[]^`|#%", "{http.request.host}", '"', "\\", '\\"\\\\""', "x" * 128]
)
def test_the_callers_id_of_the_request_is_that_of_the_edges_own_answers(edge: tuple[Instance, str], sent: str) -> None:
    _, base = edge
    refused = httpx.get(base + "/internal/x", headers={"X-Request-ID": sent})
    assert refused.json()["request_id"] == refused.headers["x-request-id"] == sent
    static = httpx.get(base + "/static/gone.css", headers={"X-Request-ID": sent})
    assert (static.status_code, static.headers["x-request-id"]) == (404, sent)
    token = httpx.get(base + "/.well-known/acme-challenge/x", headers={"X-Request-ID": sent})
    assert (token.status_code, token.headers["x-request-id"]) == (404, sent)
