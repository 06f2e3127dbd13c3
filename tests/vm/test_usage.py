"""A real machine is measured: its statistics move with what it does, and no death makes its use count twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.vm.client import Api, until
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids
from tests.vm.sleep_command import SleepCommand

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
SIZE = 2 << 20
NS = 1_000_000_000
TICKS_NS = NS // 10  # the kernel counts in hundredths here, and libvirt by another of its clocks


def stats(api: Api, workspace_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api.patiently("GET", f"/workspace/{workspace_id}/stats")["stats"]
    return found


def totals(api: Api, workspace_id: str) -> dict[str, int]:
    found: dict[str, int] = api.patiently("GET", f"/workspace/{workspace_id}/usage/totals")["usage"]
    return found


def process_time_ns(instance: TestInstance, workspace_id: str) -> int:
    """CPU time that the machine's process has had so far."""
    fields = Path(f"/proc/{machine_pids(instance)[workspace_id]}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * NS // os.sysconf("SC_CLK_TCK")


def test_statistics_and_usage_show_what_a_machine_does(api: Api) -> None:
    row = api.create()
    key = row["id"]
    idle = until(lambda: (seen := stats(api, key))["guestDiskTotal"] and seen["guestMemoryTotal"] and seen, 60, "seen")
    assert 0 < idle["guestMemoryUsed"] < idle["guestMemoryTotal"] <= 128 << 20
    assert 0 <= idle["guestDiskUsed"] < idle["guestDiskTotal"] <= 64 << 20
    api.output(key, f"head -c {SIZE} /dev/urandom > /big && sync")
    api.output(key, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
    api.execute(key, f"head -c {SIZE} /big | base64")
    busy = until(lambda: (seen := stats(api, key))["networkOutBytes"] >= SIZE // 2 and seen, 20, "what it sent")
    assert busy["apiCalls"] > idle["apiCalls"]
    used = totals(api, key)
    assert used["total_disk_write"] >= SIZE
    assert used["total_net_tx"] >= SIZE // 2
    points = api.call("GET", f"/workspace/{key}/usage", params={"tier": 0})["points"]
    assert max(point["cpu_percent"] for point in points) > 20
    info = api.call("GET", f"/workspace/{key}/info")["info"]
    assert (info["state"], info["ip"]) == ("running", row["ip"])
    assert info["counters"]["cpu_time_ns"] > 0
    api.power(key, "stop")
    stopped = stats(api, key)
    assert {stopped[name] for name in ("cpuUsage", "memoryUsedMB", "networkInBytes", "guestDiskTotal", "uptime")} == {0}
    assert totals(api, key)["total_net_tx"] >= used["total_net_tx"]


@pytest.mark.campaign
def test_nothing_counts_twice_and_totals_never_decrease_whatever_ends_or_dies(
    instance: TestInstance, api: Api, sleep_command: SleepCommand
) -> None:
    key: str = api.create()["id"]
    until(lambda: totals(api, key)["total_cpu_time_ns"], 30, "the machine is measured")
    for _ in range(2):
        before = totals(api, key)["total_cpu_time_ns"]
        api.output(key, "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done")
        instance.kill("vmhost")
        instance.wait_until_running()
        until(lambda: totals(api, key)["total_cpu_time_ns"] > before, 60, "it is measured again")  # noqa: B023
        assert totals(api, key)["total_cpu_time_ns"] <= process_time_ns(instance, key) + TICKS_NS
    until(lambda: totals(api, key)["total_cpu_time_ns"] > 0.9 * process_time_ns(instance, key), 30, "all is counted")
    counted = totals(api, key)["total_cpu_time_ns"]
    api.power(key, "restart")
    until(lambda: totals(api, key)["total_cpu_time_ns"] > counted, 60, "the new process is measured")
    assert totals(api, key)["total_cpu_time_ns"] <= counted + NS * 10 + process_time_ns(instance, key)
    assert_totals_never_decrease(instance, api, sleep_command, key)


def assert_totals_never_decrease(instance: TestInstance, api: Api, sleep_command: SleepCommand, key: str) -> None:
    shown = totals(api, key)

    def look() -> None:
        nonlocal shown
        now = totals(api, key)
        assert all(now[name] >= shown[name] for name in now), (shown, now)
        shown = now

    sleep_command.sleep(key)
    look()
    api.power(key, "start")
    look()
    instance.kill("redis")
    look()
    instance.wait_until_running()
    look()
    os.kill(machine_pids(instance)[key], signal.SIGKILL)
    instance.kill("vmhost")
    look()
    until(lambda: api.get(key)["status"] == "stopped", 60, "the death is seen")
    look()
    row = instance.query(f"SELECT total_cpu_time_ns FROM workspaces_usage WHERE workspace_id = '{key}'")
    assert 0 < row[0][0] <= shown["total_cpu_time_ns"]
