"""A task's output while all between it and its client fails: each line comes once, and its end once."""

from __future__ import annotations

import json
import random
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.run_extent import number_of
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance
from tests.vm.sleep_command import SleepCommand
from tests.vm.test_runtime_socket import Runtime, runtime

__all__ = ["runtime"]
pytestmark = [pytest.mark.vm, pytest.mark.campaign, pytest.mark.usefixtures("clean"), pytest.mark.timeout(5400)]
MEGABYTES = number_of("MEGABYTES", 20, 100)
KILLS, CUTS, SLEEPS = number_of("KILLS", 8, 50), number_of("CUTS", 4, 20), number_of("SLEEPS", 2, 5)
LONGEST_CUT = number_of("LONGEST_CUT", 3, 30)  # seconds
BYTES_PER_LINE = 8
# Seconds between two faults. In the longest cut less is written than a log keeps.
PAUSE = max(1, LONGEST_CUT // 7)
# As many parts as there are faults.
PARTS = "n=0; while [ $n -lt {parts} ]; do seq $((n*{part}+1)) $((n*{part}+{part})); n=$((n+1)); sleep {pause}; done"


class Lines:
    """The numbered lines that have come, each checked as it comes."""

    def __init__(self) -> None:
        self.last, self.rest, self.gaps = 0, b"", 0
        self.event_id = ""
        self.ends: list[dict[str, Any]] = []

    def feed(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        if not lines:
            return
        assert lines == [b"%d" % number for number in range(self.last + 1, self.last + 1 + len(lines))]
        self.last += len(lines)


def events(response: httpx.Response) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Names, ids and data of events."""
    event = {"id": "", "event": ""}
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "data":
            yield event["event"], event["id"], json.loads(value)
        elif name in event:
            event[name] = value


def follow(runtime: Runtime, task: str, lines: Lines, cut: threading.Event) -> None:
    """Follow until the end, or until something fails or the client is cut off."""
    headers = {"Authorization": f"Bearer {runtime.token}"}
    if lines.event_id:
        headers["Last-Event-ID"] = lines.event_id
    url = f"{runtime.url}/exec/stream?task_id={task}"
    with httpx.stream("GET", url, headers=headers, timeout=60, trust_env=False) as response:
        if response.status_code != 200:
            return
        for name, id, data in events(response):
            if cut.is_set():
                return
            lines.event_id = id
            if name == "stdout":
                lines.feed(b64decode(data["data"]))
            elif name == "gap":
                lines.gaps += data["bytes"]
            elif name == "exit":
                lines.ends.append(data)
                return


def follow_patiently(runtime: Runtime, task: str, lines: Lines, cut: threading.Event) -> None:
    choose = random.Random(3)
    while not lines.ends:
        try:
            follow(runtime, task, lines, cut)
        except httpx.HTTPError:
            time.sleep(0.2)
        if cut.is_set():
            time.sleep(choose.uniform(0, LONGEST_CUT))
            cut.clear()


def started(runtime: Runtime, script: str) -> str:
    """The task, whose client leaves at once."""
    headers, request = {"Authorization": f"Bearer {runtime.token}"}, {"cmd": script, "keep_logs": True}
    url = f"{runtime.url}/exec/stream"
    with httpx.stream("POST", url, json=request, headers=headers, timeout=60, trust_env=False) as response:
        return str(next(events(response))[2]["task_id"])


def test_each_line_comes_once_whatever_fails(
    api: Api, instance: TestInstance, runtime: Runtime, sleep_command: SleepCommand
) -> None:
    faults = ["kill"] * KILLS + ["cut"] * CUTS + ["sleep"] * SLEEPS
    random.Random(5).shuffle(faults)
    part = (MEGABYTES << 20) // BYTES_PER_LINE // len(faults)
    last = part * len(faults)
    task = started(runtime, PARTS.format(parts=len(faults), part=part, pause=PAUSE))
    lines, cut = Lines(), threading.Event()
    following = threading.Thread(target=follow_patiently, args=(runtime, task, lines, cut))
    following.start()
    done = []
    for fault in faults:
        time.sleep(PAUSE)
        if not following.is_alive():
            break
        if fault == "kill":
            instance.kill("streams")
        elif fault == "cut":
            cut.set()
        elif sleep_command.ask(runtime.id) != f"{runtime.id} sleeping":
            continue  # somebody follows it: it is in use
        done.append(fault)
    following.join(1800)
    assert (lines.last, lines.rest, lines.gaps) == (last, b"", 0)
    assert [(end["status"], end["exit_code"]) for end in lines.ends] == [("exited", 0)]
    assert len(done) > len(faults) // 2
    runtime.call("DELETE", f"/exec/{task}")


def test_what_nobody_followed_begins_with_one_gap_of_exact_size(runtime: Runtime) -> None:
    last = (MEGABYTES << 20) // BYTES_PER_LINE
    task = started(runtime, f"seq 1 {last}")
    until(lambda: runtime.call("GET", f"/exec/{task}")["status"] == "exited", 1800, "it has written all")
    gaps, data, ends = [], bytearray(), []
    headers = {"Authorization": f"Bearer {runtime.token}"}
    url = f"{runtime.url}/exec/stream?task_id={task}&offset=0"
    with httpx.stream("GET", url, headers=headers, timeout=60, trust_env=False) as response:
        for name, _, event in events(response):
            if name == "stdout":
                data += b64decode(event["data"])
            elif name == "gap":
                assert not data
                gaps.append(event["bytes"])
            elif name == "exit":
                ends.append(event["exit_code"])
    written = b"".join(b"%d\n" % number for number in range(1, last + 1))
    assert ends == [0]
    assert len(gaps) == 1
    assert gaps[0] + len(data) == len(written)
    assert data == written[gaps[0] :]
    runtime.call("DELETE", f"/exec/{task}")
