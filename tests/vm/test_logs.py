"""Logs and event streams of real machines, through the edge: rotation, a killed server, an endless log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.vm.client import Api, until
from tests.vm.conftest import Witness, assert_unnoticed
from tests.vm.instances import TestInstance
from tests.vm.onhost import assert_nothing_is_left_over, machine_pids

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]

# 150 lines of 1 kB, then a rest: fast enough to be rotated soon, slow enough to be followed line by line.
COUNTER = (
    "fill=$(head -c 1000 /dev/zero | tr '\\0' x); n=0; "
    'while [ $n -lt 3000 ]; do n=$((n+1)); echo "$n $fill"; [ $((n % 50)) -eq 0 ] && sleep 0.4; done; sleep 100000'
)
# To both logs at once, binary included.
FLOOD = (
    "(while :; do head -c 60000 /dev/urandom; done >/dev/ttyS0 2>&1 &) ; "
    "while :; do head -c 60000 /dev/urandom; echo; done"
)


TICKS = "n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.2; done"
MAIN = "echo out; echo err >&2; exec sleep 100000"


@pytest.fixture(scope="module")
def logging(api: Api, witness: Witness) -> Iterator[str]:
    """A workspace with a main program and two workloads, for the tests of this file in their order."""
    workloads = [{"name": name, "cmd": ["sh", "-c", text]} for name, text in (("counter", COUNTER), ("ticks", TICKS))]
    yield api.create(cmd=["sh", "-c", MAIN], workloads=workloads)["id"]
    api.delete_all(keep=[witness.id])


@pytest.fixture
def clean(instance: TestInstance, api: Api, witness: Witness, logging: str) -> Iterator[None]:
    """As for the other tests, but that the workspace stays."""
    yield
    instance.wait_until_running()
    assert_unnoticed(instance, api, witness)
    api.delete_all(keep=[witness.id, logging])
    assert_nothing_is_left_over(instance, api)


@dataclass(frozen=True)
class Event:
    kind: str
    id: str
    data: dict[str, Any]


@contextmanager
def stream(api: Api, path: str, last: str = "") -> Iterator[Iterator[Event]]:
    """The events of a stream; it ends when the connection is cut."""
    headers = {"Last-Event-ID": last} if last else {}
    with api.http.stream("GET", path, headers=headers, timeout=120) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["Content-Type"] == "text/event-stream"
        yield events(response)


def events(response: httpx.Response) -> Iterator[Event]:
    found: dict[str, str] = {}
    try:
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name in ("event", "id", "data"):
                found[name] = value
            elif not line and "data" in found:
                yield Event(found["event"], found["id"], json.loads(found["data"]))
                found = {}
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return


def patiently(api: Api, path: str, last: str) -> Iterator[Event]:
    """A stream that is continued over cut connections, as a browser does."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        try:
            with stream(api, path, last) as found:
                for event in found:
                    last = event.id
                    yield event
        except (httpx.TransportError, AssertionError):
            time.sleep(0.5)


def lines(api: Api, made: str, source: str, count: int = 100) -> list[str]:
    body = api.call("GET", f"/workspace/{made}/logs", params={"source": source, "tail_lines": count})
    return [entry["line"] for entry in body["logs"]]


def test_a_log_is_followed_through_rotation_and_through_the_death_of_the_streams_process(
    instance: TestInstance, api: Api, logging: str
) -> None:
    made = logging
    path = f"/workspace/{made}/logs/stream/counter?tail_lines=1000"
    numbers: list[int] = []
    killed = False
    for event in patiently(api, path, ""):
        assert event.kind == "message", event
        assert event.data["source"] == "counter"
        numbers.append(int(event.data["line"].split(" ", 1)[0]))
        if len(numbers) > 800 and not killed:
            killed = True
            instance.kill("streams")
        if numbers[-1] == 3000:
            break
    assert numbers == list(range(numbers[0], 3001))
    assert numbers[0] < 500
    listed = {file["name"]: file["size"] for file in api.call("GET", f"/workspace/{made}/logs/list")["files"]}
    assert listed["counter.log.1"] > 500_000
    assert sum(size for name, size in listed.items() if name.startswith("counter")) <= 4_000_000
    assert len(lines(api, made, "counter", 2000)) > 900
    path = f"/workspace/{made}/logs/file/counter.log.1"
    raw = api.http.get(path, headers={"Accept": "text/plain"})
    assert (raw.status_code, len(raw.content)) == (200, listed["counter.log.1"])
    part = api.http.get(path, headers={"Accept": "text/plain", "Range": "bytes=-100"})
    assert (part.status_code, part.content) == (206, raw.content[-100:])
    assert api.call("GET", path)["content"].encode() == raw.content


def test_a_guest_that_talks_without_end_fills_no_disk_and_breaks_no_stream(instance: TestInstance, api: Api) -> None:
    made = api.create(workloads=[{"name": "flood", "cmd": ["sh", "-c", FLOOD]}])["id"]
    base = f"/workspace/{made}"
    with (
        stream(api, f"{base}/logs/stream/boot") as boot,
        stream(api, f"{base}/logs/stream/flood") as flood,
        stream(api, f"{base}/stats/stream") as stats,
    ):
        for source, found in (("boot", boot), ("flood", flood)):
            got = [next(found) for _ in range(300)]
            assert {event.kind for event in got} <= {"message", "gap"}
            assert {event.data["source"] for event in got if event.kind == "message"} == {source}
        ups = [next(stats).data["uptime"] for _ in range(3)]
        assert ups[0] <= ups[1] <= ups[2]
    until(lambda: api.output(made, "ls /var/log/workspace/flood.log.1"), 60, "the log is rotated")
    assert int(api.output(made, "cat /var/log/workspace/flood.log* | wc -c")) <= 4_100_000
    console = instance.state / "machines" / made
    assert sum(file.stat().st_size for file in console.glob("boot.log*")) <= 1 << 20
    for source in ("boot", "flood"):
        assert len(lines(api, made, source, 50)) == 50


def test_the_main_programs_output_is_logged(instance: TestInstance, api: Api, logging: str) -> None:
    made = logging
    until(lambda: lines(api, made, "cmd") == ["out", "err"], 20, "both streams are in the log")
    assert made in machine_pids(instance), "a main program that runs keeps its machine"
    entries = api.call("GET", f"/workspace/{made}/logs", params={"source": "cmd"})["logs"]
    assert [entry["stream"] for entry in entries] == ["stdout", "stderr"]
    times = [datetime.fromisoformat(entry["timestamp"]).timestamp() for entry in entries]
    created = datetime.fromisoformat(api.get(made)["created_at"]).timestamp()
    assert all(created - 5 < at < created + 120 for at in times), "the times of the guest's logger"
    with stream(api, f"/workspace/{made}/logs/stream/cmd") as found:
        assert [next(found).data["line"] for _ in range(2)] == ["out", "err"]


def test_logs_are_cleared_under_open_streams(api: Api, logging: str) -> None:
    made = logging
    base = f"/workspace/{made}"
    until(lambda: len(lines(api, made, "ticks")) > 5, 30, "the workload writes")
    assert "ready" in " ".join(lines(api, made, "boot"))
    with stream(api, f"{base}/logs/stream/ticks") as ticks, stream(api, f"{base}/logs/stream/boot") as boot:
        before = next(ticks).data["line"]
        assert next(boot).data["timestamp"].endswith("Z")
        api.call("DELETE", f"{base}/logs")
        for found in (ticks, boot):
            assert any(event.data == {"cleared": True} for event in found)
        after = [next(ticks).data["line"] for _ in range(5)]
    assert before not in lines(api, made, "ticks")
    assert lines(api, made, "boot") == []
    numbers = [int(line.split()[1]) for line in after]
    assert numbers == list(range(numbers[0], numbers[0] + 5))


def test_a_stopped_workspace_has_its_console_alone(api: Api, logging: str) -> None:
    api.power(logging, "stop")
    refused = api.call("GET", f"/workspace/{logging}/logs", 409, params={"source": "cmd"})
    assert refused["code"] == "vm_not_running"
    assert lines(api, logging, "boot")
