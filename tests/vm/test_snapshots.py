"""Snapshots, restores and forks in a whole instance: what copies share, what they do not, and what kills leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.vm.client import Api, until
from tests.vm.instances import TestInstance, new_instance
from vmbackend.libvirt.store import FOLDER

pytestmark = pytest.mark.vm
WHO = """
cat /proc/sys/kernel/random/boot_id /sys/class/net/eth0/address /run/kit/generation
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo
hostname; hostname -i
"""
# The one is in memory only, the other on the disk.
KEEP = "echo {0} > /dev/shm/note; echo {0} > /root/note; sync"
KEPT = "cat /dev/shm/note /root/note"


@pytest.fixture(scope="module")
def instance() -> Iterator[TestInstance]:
    with new_instance() as made:
        made.start()
        yield made


@pytest.fixture
def api(instance: TestInstance) -> Iterator[Api]:
    made = instance.api()
    yield made
    instance.wait_until_running()
    made.delete_all(keep=[])
    until(lambda: not entries(instance), 60, "no file of the store is left without an owner")


def entries(instance: TestInstance) -> list[str]:
    return [path.name for path in (instance.settings.machines_dir / FOLDER).glob("snap_*")]


def noted(api: Api, text: str = "before", **options: Any) -> str:
    made: str = api.create(**options)["id"]
    api.output(made, KEEP.format(text))
    return made


def snapshot(api: Api, workspace_id: str, **options: Any) -> dict[str, Any]:
    made: dict[str, Any] = api.call("POST", f"/workspace/{workspace_id}/snapshot", 201, json=options)["snapshot"]
    assert made["status"] == "ready"
    return made


def ended_snapshot(api: Api, snapshot_id: str) -> dict[str, Any] | None:
    found: dict[str, Any] = api.patiently("GET", f"/snapshots/{snapshot_id}")["snapshot"]
    return found if found["status"] != "creating" else None


def test_a_workspace_goes_back_to_a_snapshot_with_its_memory(api: Api) -> None:
    made = noted(api)
    kept = snapshot(api, made, name="first")
    assert (kept["memory"], kept["usable"], api.get(made)["status"]) == (True, True, "running")
    identity = api.output(made, WHO).split()
    api.output(made, KEEP.format("after"))
    back = api.call("POST", f"/workspace/{made}/restore", json={"snapshot": "first"})["workspace"]
    assert (back["status"], back["started_from"], back["ip"]) == ("running", "snapshot", identity[-1])
    assert api.output(made, KEPT).split() == ["before", "before"]
    again = api.output(made, WHO).split()
    assert again[1] == identity[1], "it is the same machine"
    assert {again[0], again[2], again[3]}.isdisjoint(identity)
    cold = api.call("POST", f"/workspace/{made}/restore", json={"memory": False})["workspace"]
    assert cold["started_from"] == "boot"
    assert api.output(made, "cat /root/note; ls /dev/shm").split() == ["before"]


def test_forks_go_on_as_machines_of_their_own(api: Api) -> None:
    parent = noted(api)
    answer = api.call(
        "POST", f"/workspace/{parent}/fork", 201, json={"count": 2, "env": [{"key": "OWN", "value": "x"}]}
    )
    copies = [entry["workspace"] for entry in answer["forks"]]
    assert [copy["started_from"] for copy in copies] == ["fork", "fork"]
    known = [api.output(made, WHO).split() for made in (parent, *(copy["id"] for copy in copies))]
    for number, one in enumerate(known):
        for other in known[number + 1 :]:
            assert set(one).isdisjoint(other)
    for copy, own in zip(copies, known[1:], strict=True):
        assert own[-1] == copy["ip"]
        assert api.output(copy["id"], KEPT + "; echo $OWN").split() == ["before", "before", "x"]
        api.output(copy["id"], KEEP.format("copy"))
    assert api.output(parent, KEPT).split() == ["before", "before"]
    again = api.call("POST", f"/workspace/{copies[0]['id']}/fork", 201, json={})["forks"][0]["workspace"]
    api.call("DELETE", f"/workspace/{parent}")
    api.call("DELETE", f"/workspace/{copies[0]['id']}")
    assert api.output(again["id"], KEPT).split() == ["copy", "copy"]
    api.power(again["id"], "stop")
    assert api.power(again["id"], "start")["started_from"] == "boot"
    assert api.output(again["id"], "cat /root/note").strip() == "copy"


@pytest.mark.parametrize("power", ["stop", "pause", "sleep"])
def test_a_workspace_that_does_not_run_is_kept_and_copied(api: Api, power: str) -> None:
    made = noted(api)
    before = api.power(made, power)["status"]
    kept = snapshot(api, made)
    assert (api.get(made)["status"], kept["memory"]) == (before, power != "stop")
    asked = {"snapshot": kept["id"], "mode": "permanent"}
    copy = api.call("POST", "/workspace", 201, json=asked)["workspace"]
    assert copy["source_snapshot_id"] == kept["id"]
    assert api.output(copy["id"], "cat /root/note").strip() == "before"
    assert api.output(copy["id"], "cat /dev/shm/note || true").split() == ["before"] * kept["memory"]
    api.power(made, "resume" if power == "pause" else "start")
    assert api.output(made, "cat /root/note").strip() == "before"
    assert api.call("DELETE", f"/snapshots/{kept['id']}")
    assert api.output(copy["id"], "cat /root/note").strip() == "before"


@pytest.mark.parametrize("step", ["snapshot.keep_state", "snapshot.complete"])
def test_vmhost_dies_while_a_snapshot_is_made(instance: TestInstance, api: Api, step: str) -> None:
    made = noted(api)
    with instance.held(step):
        begun = api.call("POST", f"/workspace/{made}/snapshot", 202, json={"wait_ready": False})["snapshot"]
        instance.wait_for_step(made, step)
        instance.kill("vmhost")
    ended = until(lambda: ended_snapshot(api, begun["id"]), 120, "the snapshot ends")
    assert ended["status"] == "ready"
    assert api.settles(made)["status"] == "running"
    assert api.output(made, KEPT).split() == ["before", "before"]
