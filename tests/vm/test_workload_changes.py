"""Workloads of a real machine are added, changed, stopped and removed by the API while it runs, and over its sleep."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vm.client import Api, until
from tests.vm.test_logs import stream

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]


def test_workloads_change_while_the_machine_runs_and_while_it_does_not(api: Api) -> None:
    made = api.create()["id"]
    path = f"/workspace/{made}/workloads"
    web = {"name": "web", "cmd": ["sh", "-c", "echo hello $WHO; exec sleep 999"], "env": ["WHO=you"]}
    body = api.call("POST", path, 201, json=web)
    assert (body["applied"], body["workload"]["status"] in {"starting", "running"}) == (True, True)

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = api.call("GET", f"{path}/web")["workload"]
        return found

    def lines() -> list[str]:
        return [entry["line"] for entry in api.call("GET", f"{path}/web/logs")["logs"]]

    until(lambda: shown()["status"] == "running", 20, "it runs")
    until(lambda: lines() == ["hello you"], 20, "its log is there")
    pid = shown()["pid"]
    assert api.output(made, ["cat", f"/proc/{pid}/comm"]) == "sleep"
    stopped = api.call("POST", f"{path}/web/stop")["workload"]
    assert (stopped["status"], stopped["exit_code"]) == ("stopped", 143)
    assert api.call("POST", f"{path}/web/start")["workload"]["status"] in {"starting", "running"}
    api.call("POST", f"/workspace/{made}/pause")
    assert api.call("PATCH", f"{path}/web", json={"env": ["WHO=them"]})["applied"] is False
    api.call("POST", f"/workspace/{made}/resume")
    until(lambda: lines()[-1:] == ["hello them"], 20, "the change has been applied")
    assert api.call("DELETE", f"{path}/web")["applied"] is True
    assert api.call("GET", path)["workloads"] == []


# A child of the program, which takes a CPU and 8 MiB; what began a session of its own is not the workload's.
BUSY = "setsid sleep 999 & (x=$(head -c 8000000 /dev/zero | tr '\\0' x); while :; do :; done) & wait"


def test_what_workloads_take_is_measured_in_the_machine(api: Api) -> None:
    made = api.create()["id"]
    path = f"/workspace/{made}/workloads"
    for name, command in (("busy", BUSY), ("idle", "echo hello; exec sleep 999")):
        api.call("POST", path, 201, json={"name": name, "cmd": ["sh", "-c", command]})

    def stats(name: str) -> dict[str, Any]:
        found: dict[str, Any] = api.call("GET", f"{path}/{name}/stats")["stats"]
        return found

    until(lambda: stats("busy")["memory_bytes"] > 8_000_000, 60, "it has its memory")
    until(lambda: stats("busy")["cpu_percent"] > 30, 60, "it is busy")
    until(lambda: stats("idle")["pid"] is not None, 20, "the other one runs")
    idle, row = stats("idle"), api.call("GET", f"{path}/idle")["workload"]
    assert idle["pid"] == row["pid"]
    assert idle["cpu_percent"] < 30
    assert 0 < idle["memory_bytes"] < 4_000_000
    with stream(api, f"{path}/stats/stream") as events:
        seen = {event.data["id"]: event.data for event in (next(events) for _ in range(4))}
    assert (seen["idle"]["pid"], seen["busy"]["cpu_percent"] > 30) == (row["pid"], True)
    with stream(api, f"{path}/idle/logs/stream") as events:
        line = next(events).data
    assert (line["data"], line["stream"], set(line)) == ("hello", "stdout", {"data", "stream", "timestamp"})
    api.call("POST", f"{path}/busy/stop")
    assert stats("busy") == {"pid": None, "uptime": 0, "cpu_percent": 0.0, "memory_bytes": 0}
    assert api.call("DELETE", path)["removed"] == 2
    assert api.call("GET", path)["workloads"] == []
