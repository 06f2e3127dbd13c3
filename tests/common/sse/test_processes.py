"""Streams in processes of their own, as uvicorn runs them: a SIGTERM, a kill -9, and the takeover."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.environment import STATE
from tests.run_extent import campaign_after

ROOT = Path(__file__).resolve().parents[3]
# As supervise.processes starts it.
OPTIONS = ["--timeout-graceful-shutdown", "3", "--no-access-log", "--no-server-header", "--log-level", "warning"]


class Process:
    """One streams process on a socket of its own."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        command = [sys.executable, "-m", "uvicorn", "tests.common.sse.app:application", "--uds", str(socket), *OPTIONS]
        environment = {**os.environ, "COUNTING_APP": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment)
        until = time.monotonic() + 120
        while not socket.exists():
            assert self.process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(120)


@pytest.fixture
def start() -> Iterator[Any]:
    started: list[Process] = []

    def one() -> Process:
        started.append(Process(STATE / f"streams-{os.urandom(3).hex()}.sock"))
        return started[-1]

    yield one
    for process in started:
        process.end()


@contextmanager
def client(process: Process, name: str, last: str | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of `count/NAME`, each with its id."""
    headers = {"Last-Event-ID": last} if last else {}
    transport = httpx.HTTPTransport(uds=str(process.socket))
    with (
        httpx.Client(transport=transport, base_url="http://localhost", timeout=30) as http,
        http.stream("GET", f"/count/{name}", headers=headers) as response,
    ):
        assert response.status_code == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["X-Request-ID"]
        yield _events(response)


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    event: dict[str, Any] = {}
    try:
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name in ("event", "id", "data"):
                event[name] = value
            elif not line and event:
                yield {**json.loads(event.pop("data")), **event}
                event = {}
    except httpx.RemoteProtocolError:
        return  # cut in the middle, as by a process that dies


def take(events: Iterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    return [next(events) for _ in range(count)]


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["n"] for event in events]


def test_a_sigterm_ends_a_process_with_open_streams_and_clients_go_on_elsewhere(start: Any) -> None:
    name = f"sigterm-{os.urandom(4).hex()}"
    first = start()
    with client(first, name) as events:
        seen = take(events, 5)
        first.process.send_signal(signal.SIGTERM)
        seen += list(events)
        first.process.wait(120)
    with client(start(), name, seen[-1]["id"]) as events:
        seen += take(events, 10)
    assert {event["event"] for event in seen} == {"message"}
    assert numbers(seen) == list(range(1, len(seen) + 1))


@pytest.mark.parametrize("how", campaign_after(1, [signal.SIGKILL, signal.SIGSTOP]), ids=["killed", "hung"])
def test_another_process_takes_over_the_channel_without_loss_or_double(start: Any, how: int) -> None:
    name = f"follow-{os.urandom(4).hex()}"
    processes = [start(), start()]
    with client(processes[0], name) as one, client(processes[1], name) as two:
        writer = take(one, 5)[0]["pid"]
        assert {event["pid"] for event in take(two, 5)} == {writer}, "one writer, however many read"
        gone = next(process for process in processes if process.process.pid == writer)
        events = two if gone is processes[0] else one
        seen = take(events, 1)
        gone.process.send_signal(how)
        while seen[-1]["pid"] == writer:
            seen.append(next(events))
        seen += take(events, 10)
        gone.process.send_signal(signal.SIGCONT)  # which believes that it still has the lease
        seen += take(events, 60)
    assert numbers(seen) == list(range(seen[0]["n"], seen[0]["n"] + len(seen)))
    assert {event["event"] for event in seen} == {"message"}
