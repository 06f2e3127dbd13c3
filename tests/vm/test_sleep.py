"""Sleep and wake on real machines: memory on disk, clock and random pool right afterwards, never stuck."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import httpx
import pytest

from tests.run_extent import WHOLE
from tests.vm.client import Api, until
from tests.vm.conftest import Witness, boot_of, end_of_test, is_right
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids, saved_memory
from tests.vm.sleep_command import SleepCommand

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
IDLE_SECONDS = 120
USE_EVERY_SECONDS = 10
CYCLES = 50 if WHOLE else 8


@dataclass(frozen=True)
class IdlePair:
    """Two workspaces with the shortest idle time, which passes while the tests of this file do something else."""

    idle: str
    used: str


@pytest.fixture(scope="module")
def pair(api: Api, witness: Witness) -> Iterator[IdlePair]:
    made, over = IdlePair(*(with_idle_policy(api) for _ in range(2))), threading.Event()

    def use() -> None:
        while not over.wait(USE_EVERY_SECONDS):
            with suppress(httpx.HTTPError):  # while a process is started again
                api.http.post(f"/workspace/{made.used}/exec", json={"cmd": "true"})

    using = threading.Thread(target=use)
    using.start()
    yield made
    over.set()
    using.join()
    api.delete_all(keep=[witness.id])


@pytest.fixture
def clean(instance: TestInstance, api: Api, witness: Witness, kept: list[str], pair: IdlePair) -> Iterator[None]:
    yield
    end_of_test(instance, api, witness, kept, (pair.idle, pair.used))


def test_a_sleeping_workspace_keeps_its_memory_and_uses_no_process(
    instance: TestInstance, api: Api, sleep_command: SleepCommand, running: str
) -> None:
    made = running
    boot = boot_of(api, made)
    sleep_command.sleep(made)
    row = api.get(made)
    assert (row["status"], row["ready"], row["info"]["is_running"], row["uptime"]) == ("sleeping", False, False, 0)
    assert made not in machine_pids(instance)
    assert made in saved_memory(instance)
    assert api.execute(made, "true", expect=409)["details"]["status"] == "sleeping"
    time.sleep(4)
    assert api.power(made, "resume")["status"] == "running"
    before = time.time()
    assert is_right(api.output(made, "date +%s"), since=before)
    assert boot_of(api, made) == boot
    assert made not in saved_memory(instance)
    sleep_command.sleep(made)
    assert api.power(made, "start")["status"] == "running"
    assert boot_of(api, made) == boot
    sleep_command.sleep(made)
    assert api.power(made, "stop")["status"] == "stopped"
    assert made not in saved_memory(instance)


def test_many_wakes_at_once_are_one(
    instance: TestInstance, api: Api, sleep_command: SleepCommand, running: str
) -> None:
    made = running
    wakes = f"SELECT count(*) FROM workspaces_operation WHERE workspace_id = '{made}' AND kind = 'wake'"
    before = instance.query(wakes)[0][0]
    boot = boot_of(api, made)
    sleep_command.sleep(made)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: api.http.post(f"/workspace/{made}/start"), range(10)))
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert any(answer.status_code == 200 for answer in answers)
    api.reaches(made, "running")
    assert instance.query(wakes) == [(before + 1,)]
    assert boot_of(api, made) == boot


def test_memory_that_cannot_be_loaded_leads_to_a_cold_start_that_is_reported(
    instance: TestInstance, api: Api, sleep_command: SleepCommand, running: str
) -> None:
    made = running
    api.output(made, "echo kept >/root/kept; sync")
    boot = boot_of(api, made)
    sleep_command.sleep(made)
    path = saved_memory(instance)[made]
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    assert api.power(made, "start")["status"] == "running"
    assert boot_of(api, made) != boot
    assert api.output(made, ["cat", "/root/kept"]) == "kept"
    events = f"SELECT action FROM workspaces_activity WHERE workspace_id = '{made}' ORDER BY id"
    assert {("memory_lost",), ("started_cold",)} <= set(instance.query(events))


def test_a_vmhost_that_starts_again_finds_its_sleeping_workspaces(
    instance: TestInstance, api: Api, sleep_command: SleepCommand, running: str
) -> None:
    made = running
    boot = boot_of(api, made)
    sleep_command.sleep(made)
    instance.kill("vmhost")
    assert api.get(made)["status"] == "sleeping"
    until(lambda: api.http.post(f"/workspace/{made}/start").status_code == 200, 60, "it wakes")
    assert boot_of(api, made) == boot


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_many_sleeps_keep_memory_and_disk(api: Api, sleep_command: SleepCommand, running: str) -> None:
    made = running
    # A nonce in memory alone, and a file in the page cache and on the disk.
    api.output(made, "head -c 16 /dev/urandom | md5sum >/dev/shm/nonce; head -c 4000000 /dev/urandom >/root/file")
    nonce = api.output(made, ["cat", "/dev/shm/nonce"])
    files = api.output(made, ["md5sum", "/root/file"])
    drawn = set()
    for _ in range(CYCLES):
        sleep_command.sleep(made)
        assert api.power(made, "start")["status"] == "running"
        before = time.time()
        output = api.output(made, "cat /dev/shm/nonce; md5sum /root/file; head -c 16 /dev/urandom | md5sum; date +%s")
        kept, summed, random, clock = output.splitlines()
        assert (kept, summed) == (nonce, files)
        assert is_right(clock, since=before)
        drawn.add(random)
    assert len(drawn) == CYCLES


def test_an_idle_workspace_falls_asleep_and_one_in_use_does_not(api: Api, pair: IdlePair) -> None:
    until(lambda: api.get(pair.idle)["status"] == "sleeping", IDLE_SECONDS + 30, "the idle one sleeps")
    assert api.get(pair.used)["status"] == "running"


def test_a_delete_of_a_sleeping_workspace_leaves_no_memory(
    instance: TestInstance, api: Api, sleep_command: SleepCommand, running: str
) -> None:
    made = running
    sleep_command.sleep(made)
    api.delete(made)
    assert made not in saved_memory(instance)


def with_idle_policy(api: Api) -> str:
    """A workspace that sleeps after the shortest time there is."""
    made: str = api.create()["id"]
    answer = api.call("PUT", f"/workspace/{made}/lifecycle/idle", json={"suspend_after": IDLE_SECONDS})
    assert answer["idle"] == {"suspend_after": IDLE_SECONDS, "stop_after": 0, "enabled": True}
    return made
