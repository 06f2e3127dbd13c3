"""Workloads of a real machine are added, changed, stopped and removed by the API while it runs, and over its sleep."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vm.client import Api, until

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
