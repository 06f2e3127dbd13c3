"""The warm pool in a whole instance: what a workspace is that was ready before it was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm.client import Api, until
from tests.vm.instances import TestInstance, new_instance

pytestmark = pytest.mark.vm
WHO = """
cat /proc/sys/kernel/random/boot_id /sys/class/net/eth0/address /run/kit/generation
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo
hostname; hostname -i
"""
READY = "SELECT id FROM workspaces_warmmachine WHERE state = 'ready'"
# It leaves a line for each time that it began.
PROGRAM = ["sh", "-c", "echo $OWN $(hostname) $(date +%s) >> /root/begun; exec sleep 99999"]


@pytest.fixture(scope="module")
def pooled() -> Iterator[TestInstance]:
    with new_instance(PLATFORM_POOL_MEMORY_MB="512", PLATFORM_POOL_MACHINES="2") as made:
        made.start()
        yield made


@pytest.fixture
def api(pooled: TestInstance) -> Iterator[Api]:
    made = pooled.api()
    yield made
    pooled.wait_until_running()
    made.delete_all(keep=[])


def ready(instance: TestInstance, api: Api, number: int = 1) -> list[str]:
    """Have so many machines ready of the shape that the tests make by default; return their ids."""
    asked = instance.query("SELECT count(*) FROM workspaces_warmrequest WHERE at > now() - interval '8 minutes'")
    for _ in range(number - asked[0][0]):
        api.create()

    def found() -> list[str]:
        ids = [key for (key,) in instance.query(READY)]
        return ids if len(ids) >= number else []

    return list(until(found, 240, f"{number} machines are ready"))


def cpu_ticks(instance: TestInstance, workspace_id: str) -> int:
    """The CPU time of the machine's process."""
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = status.read_bytes().split(b"\0")
            if words[0].endswith(b"qemu-system-x86_64") and any(workspace_id.encode() in word for word in words):
                fields = status.with_name("stat").read_text().rpartition(")")[2].split()
                return int(fields[11]) + int(fields[12])
        except OSError:
            continue
    raise AssertionError(f"{workspace_id} has no process")


def test_creates_get_machines_that_are_theirs_alone(pooled: TestInstance, api: Api) -> None:
    machines = ready(pooled, api, 2)
    web = {"name": "web", "cmd": ["sh", "-c", "echo $OWN > /root/web; exec sleep 99999"]}
    before = time.time()
    one = api.create(
        env=[{"key": "OWN", "value": "mine"}], cmd=PROGRAM, workloads=[web], body={"slug": "first-of-pool"}
    )
    other = api.create(env=[{"key": "OWN", "value": "theirs"}])
    made: list[dict[str, Any]] = [one, other]
    assert [row["started_from"] for row in made] == ["pool", "pool"]
    assert {row["id"] for row in made} == set(machines[:2])
    mine, theirs = (api.output(row["id"], WHO).split() for row in made)
    assert set(mine).isdisjoint(theirs)
    assert mine[-2:] == ["first-of-pool", one["ip"]]
    begun = api.output(one["id"], "until [ -s /root/web ]; do sleep 0.1; done; cat /root/web /root/begun")
    assert begun.split()[:3] == ["mine", "mine", "first-of-pool"]
    assert int(begun.split()[3]) >= int(before), "the program began after the machine was asked for"
    assert api.output(other["id"], "echo $OWN; ls /root") == "theirs"
    assert abs(int(api.output(one["id"], "date +%s")) - time.time()) < 60
    keys = pooled.query(f"SELECT ssh_host_key FROM workspaces_workspace WHERE id IN ('{one['id']}', '{other['id']}')")
    assert len(set(keys)) == 2
    api.power(one["id"], "stop")
    assert api.power(one["id"], "start")["started_from"] == "boot"
    again = api.output(one["id"], "until [ $(wc -l < /root/begun) = 2 ]; do sleep 0.1; done; cat /root/begun")
    assert again.split()[0] == "mine"


def test_a_machine_that_waits_takes_no_processor_time(pooled: TestInstance, api: Api) -> None:
    [waiting, *_] = ready(pooled, api)
    before = cpu_ticks(pooled, waiting)
    time.sleep(10)
    assert cpu_ticks(pooled, waiting) == before


@pytest.mark.parametrize("step", ["assign_machine", "wait_ready"])
def test_vmhost_dies_while_a_machine_is_assigned(pooled: TestInstance, api: Api, step: str) -> None:
    machines = ready(pooled, api)
    with pooled.held(f"create.{step}"):
        made = api.begin_create(env=[{"key": "OWN", "value": "mine"}])
        pooled.wait_for_step(made, f"create.{step}")
        pooled.kill("vmhost")
    assert made in machines
    assert api.settles(made)["status"] == "running"
    assert api.output(made, "echo $OWN $(hostname -i)") == f"mine {api.get(made)['ip']}"


def test_waiting_machines_outlive_vmhost_and_are_taken_by_the_next_one(pooled: TestInstance, api: Api) -> None:
    machines = ready(pooled, api)
    pooled.kill("vmhost")
    pooled.wait_until_running()
    made = api.create(env=[{"key": "OWN", "value": "mine"}])
    assert (made["id"] in machines, made["started_from"]) == (True, "pool")
    assert api.output(made["id"], "echo $OWN") == "mine"


def test_without_demand_the_machines_go(pooled: TestInstance, api: Api) -> None:
    ready(pooled, api)
    pooled.query("DELETE FROM workspaces_warmrequest RETURNING id")
    until(lambda: not pooled.query("SELECT id FROM workspaces_warmmachine"), 60, "the pool is empty")
    folders = {path.name for path in pooled.settings.machines_dir.glob("ws_*")}
    assert folders == {row["id"] for row in api.rows()}
