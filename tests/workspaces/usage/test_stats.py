"""A look at a workspace now: statistics, info, configuration (specification, Metrics)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from common.times import from_epoch
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_host, make_workspace
from tests.workspaces.usage.measured import CPU, MIB, MeasuredHost
from vmbackend.errors import BackendUnavailable
from vmbackend.samples import GuestDisk
from workspaces import call_counter
from workspaces.metrics.selectors import human_readable, stats_of
from workspaces.models import Workspace
from workspaces.states import Status
from workspaces.usage import latest_samples
from workspaces.usage.latest_samples import SampledMachine

STATS = {
    "cpuUsage", "memoryUsage", "memoryUsedMB", "memoryTotalMB", "guestMemoryUsed", "guestMemoryTotal", "guestDiskUsed",
    "guestDiskTotal", "networkIn", "networkOut", "networkInBytes", "networkOutBytes", "uptime", "apiCalls",
}  # fmt: skip


def stats(api: Caller, row: Workspace) -> dict[str, Any]:
    answer = api.get(f"/workspace/{row.pk}/stats")
    assert answer.status_code == 200, answer.content
    assert set(answer.json()["stats"]) == STATS
    return answer.json()["stats"]


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.mark.django_db
def test_statistics_are_relative_to_what_the_workspace_has(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    host.sampler.disks.latest[row.pk] = GuestDisk(64 * MIB, 256 * MIB)
    host.seconds(5, row, cpu_time_ns=CPU, net_rx_bytes=1_000_000, net_tx_bytes=200)
    host.use(row, memory_used_bytes=512 * MIB)
    host.seconds(1)
    host.seconds(1, row, cpu_time_ns=CPU)
    shown = stats(api, row)
    assert (shown["cpuUsage"], shown["memoryUsage"]) == (50.0, 50.0)
    assert (shown["memoryUsedMB"], shown["memoryTotalMB"]) == (512, 1024)
    assert (shown["guestMemoryUsed"], shown["guestMemoryTotal"]) == (512 * MIB, 1024 * MIB)
    assert (shown["guestDiskUsed"], shown["guestDiskTotal"]) == (64 * MIB, 256 * MIB)
    assert (shown["networkInBytes"], shown["networkOutBytes"]) == (5_000_000, 1000)
    assert (shown["networkIn"], shown["networkOut"]) == ("5 MB", "1 kB")
    assert shown["uptime"] >= 0


@pytest.mark.django_db
def test_the_last_look_at_an_earlier_process_is_not_shown_after_a_start(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    host.seconds(3, row, cpu_time_ns=CPU, net_rx_bytes=1000)
    Workspace.objects.filter(pk=row.pk).update(started_at=from_epoch(host.wall))
    assert stats(api, row)["networkInBytes"] == 0
    host.restart_machine(row)
    host.seconds(1, row, net_rx_bytes=7)
    assert stats(api, row)["networkInBytes"] == 7


@pytest.mark.django_db
def test_more_than_all_is_shown_as_all(host: MeasuredHost, api: Caller) -> None:
    row = host.machine()
    host.seconds(2, row, cpu_time_ns=50 * CPU)
    assert stats(api, row)["cpuUsage"] == 100.0


@pytest.mark.django_db
@pytest.mark.parametrize("status", [Status.STOPPED, Status.SLEEPING, Status.FAILED, Status.CREATING, Status.LOST])
def test_a_workspace_that_does_not_run_gives_zeros(
    host: MeasuredHost,
    api: Caller,
    status: Status,
) -> None:
    row = host.machine()
    host.seconds(3, row, cpu_time_ns=CPU, net_rx_bytes=10)
    Workspace.objects.filter(pk=row.pk).update(status=status, ready=False)
    shown = stats(api, row)
    assert shown.pop("apiCalls") == 1
    assert (shown.pop("networkIn"), shown.pop("networkOut")) == ("0 B", "0 B")
    assert set(shown.values()) == {0}


@pytest.mark.django_db
def test_a_guest_that_says_nothing_of_itself_has_zeros_there(
    host: MeasuredHost,
    api: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dataclasses import replace

    row = host.machine()
    real = host.driver.samples
    silent = {"memory_used_bytes": None, "memory_total_bytes": None}
    monkeypatch.setattr(
        host.driver, "samples", lambda ids: {key: replace(sample, **silent) for key, sample in real(ids).items()}
    )
    host.seconds(3, row, cpu_time_ns=CPU)
    shown = stats(api, row)
    assert (shown["guestMemoryUsed"], shown["guestMemoryTotal"], shown["guestDiskTotal"]) == (0, 0, 0)
    assert (shown["memoryTotalMB"], shown["cpuUsage"]) == (1024, 50.0)


@pytest.mark.django_db
def test_statistics_take_no_query_beyond_the_workspace(
    host: MeasuredHost,
    django_assert_num_queries: Any,
) -> None:
    row = host.machine()
    host.seconds(2, row, cpu_time_ns=CPU)
    row.refresh_from_db()
    with django_assert_num_queries(0):
        assert stats_of(row)["cpuUsage"] == 50.0


@pytest.mark.django_db
def test_without_redis_statistics_are_zeros(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise redis.ConnectionError("away")

    row = make_workspace(api.account)
    monkeypatch.setattr(latest_samples, "redis_client", away)
    assert stats(api, row)["cpuUsage"] == 0


@pytest.mark.django_db
def test_each_api_call_to_a_workspace_counts_once(api: Caller, stranger: Caller) -> None:
    row, beside = make_workspace(api.account), make_workspace(api.account)
    for number in range(1, 4):
        assert stats(api, row)["apiCalls"] == number
    api.get(f"/workspace/{row.slug}")
    api.put(f"/workspace/{row.pk}", {"name": "other"})  # reads it more than once
    api.get("/workspace")
    api.get(f"/workspace/{beside.pk}")
    stranger.get(f"/workspace/{row.pk}")
    call_counter.flush_calls()
    assert stats(api, row)["apiCalls"] == 6
    assert stats(api, beside)["apiCalls"] == 2


@pytest.mark.django_db
def test_calls_count_once_while_they_are_flushed(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_workspace(api.account)
    real = latest_samples.latest_sample_and_counter
    flushes = iter((call_counter.flush_calls, lambda: None))

    def with_a_flush_before(machine: SampledMachine, counter: str) -> Any:
        next(flushes)()
        return real(machine, counter)

    monkeypatch.setattr(latest_samples, "latest_sample_and_counter", with_a_flush_before)
    assert stats(api, row)["apiCalls"] == 1


@pytest.mark.django_db
def test_calls_that_redis_did_not_take_are_reported_later(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise redis.ConnectionError("away")

    row = make_workspace(api.account)
    with monkeypatch.context() as outage:
        outage.setattr(call_counter, "redis_client", away)
        stats(api, row)
        call_counter.flush_calls()
    assert stats(api, row)["apiCalls"] == 2


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_540_000, "1.5 MB"), (999_960, "1 MB"), (2e15, "2000 TB")],
)
def test_sizes_are_readable(size: float, shown: str) -> None:
    assert human_readable(size) == shown


@pytest.mark.django_db(transaction=True)
def test_a_running_workspace_is_measured_by_its_host(vmhost: FakeHost, api: Caller) -> None:
    made = api.post("/workspace", {"config": {"memory_mb": 256}}).json()["workspace"]
    row = Workspace.objects.get(pk=made["id"])
    vmhost.driver.add_usage(row.pk, net_rx_bytes=5000)
    shown = until(lambda: (found := stats(api, row))["networkInBytes"] and found["guestDiskTotal"] and found)
    assert (shown["memoryTotalMB"], shown["memoryUsage"]) == (256, 25.0)
    details = api.get(f"/workspace/{row.pk}/details").json()
    assert set(details["stats"]) == STATS
    until(lambda: api.get(f"/workspace/{row.pk}/usage?tier=0").json()["points"])
    assert api.get(f"/workspace/{row.pk}/usage/totals").json()["usage"]["total_net_rx"] == 5000
    vmhost.restart()
    vmhost.driver.add_usage(row.pk, net_rx_bytes=1)
    until(lambda: api.get(f"/workspace/{row.pk}/usage/totals").json()["usage"]["total_net_rx"] == 5001)
    api.post(f"/workspace/{row.pk}/stop")
    assert stats(api, row)["networkInBytes"] == 0
    assert api.get(f"/workspace/{row.pk}/usage/totals").json()["usage"]["total_net_rx"] == 5001


@pytest.mark.django_db(transaction=True)
def test_info_is_what_the_host_says(vmhost: FakeHost, api: Caller) -> None:
    made = api.post("/workspace", {"config": {"env": ["KEY=hidden-value"], "cmd": ["some", "command"]}}).json()
    path = f"/workspace/{made['workspace']['id']}"
    vmhost.driver.add_usage(made["workspace"]["id"], cpu_time_ns=5)
    info = api.get(f"{path}/info").json()["info"]
    assert (info["status"], info["state"], info["ip"]) == ("running", "running", made["workspace"]["ip"])
    assert (info["resources"]["memory_mb"], info["host"]) == (512, "local")
    assert info["counters"]["cpu_time_ns"] == 5
    assert info["machine"]["id"] == info["id"] == made["workspace"]["id"]
    assert "hidden-value" not in str(info)
    api.post(f"{path}/stop")
    info = api.get(f"{path}/info").json()["info"]
    assert (info["status"], info["state"], info["counters"], info["uptime"]) == ("stopped", "off", None, 0)
    # Others ask for the state too, such as what settles the end of the stop.
    vmhost.driver.fail_next("state", BackendUnavailable("The hypervisor is away."), times=5)
    refused = api.get(f"{path}/info")
    assert (refused.status_code, refused.json()["code"]) == (503, "VM_UNAVAILABLE")


@pytest.mark.django_db
def test_info_of_a_workspace_without_a_machine_needs_no_host(api: Caller) -> None:
    row = make_workspace(api.account, status=Status.FAILED)
    info = api.get(f"/workspace/{row.pk}/info").json()["info"]
    assert (info["state"], info["machine"], info["counters"]) == ("absent", None, None)


@pytest.mark.django_db
def test_a_silent_host_is_reported(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from celery import current_app

    monkeypatch.setattr("workspaces.host_rpc.REPLY_SECONDS", 0.1)
    monkeypatch.setattr(current_app, "send_task", lambda *args, **kwargs: None)
    row = make_workspace(api.account, host=make_host())
    assert api.get(f"/workspace/{row.pk}/info").status_code == 503


@pytest.mark.django_db
def test_the_configuration_holds_no_secret(api: Caller) -> None:
    row = make_workspace(
        api.account,
        env={"KEY": "hidden-value"},
        workloads=[{"name": "w", "cmd": ["x"], "env": {"OTHER": "hidden-too"}}],
        ssh_keys=["ssh-ed25519 AAAA hidden-key"],
    )
    answer = api.get(f"/workspace/{row.pk}/config")
    config = answer.json()["config"]
    assert config["env"] == [{"key": "KEY", "value": "***"}]
    assert (config["image"], config["cpus"], config["ip"]) == (row.image, 0.1, row.ip)
    assert b"hidden" not in answer.content
    assert "idempotency_key" not in config
    details = api.get(f"/workspace/{row.pk}/details").json()["config"]
    assert details.items() <= config.items()
