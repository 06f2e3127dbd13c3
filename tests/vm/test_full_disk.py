"""The host's disk is full for a while: real processes and real machines on a small file system of their own.

What fails then fails with a documented error, and afterwards everything is as before, by itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.small_disk import SMALL_DISK, SmallDisk, small_disk
from tests.vm.client import Api, until
from tests.vm.images import BUSYBOX
from tests.vm.instances import TestInstance, new_instance
from tests.vm.onhost import machine_pids
from tests.vm.sandbox_sockets import connect

pytestmark = [pytest.mark.vm, pytest.mark.campaign]

DISK_MB, RESERVE_MB = 460, 64
SMALL = {"image": BUSYBOX, "config": {"memory_mb": 128, "disk_size_mb": 64, "cpus": 1}, "mode": "permanent"}
LARGE = {"metadata": {"text": "x" * 50_000}}
SANDBOX = {"name": "agent", "image": BUSYBOX, "config": SMALL["config"]}
COUNT = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line-$i-; sleep 0.05; done"
# More than there will be room for; of one random block, as on emulation more of them take minutes beside other work.
# Slowly: the guard looks five times a second, or later on a busy host, before the reserve is written full.
WRITE = (
    "(head -c 1048576 /dev/urandom >/block; for i in $(seq 100); do cat /block >>/large; sync; sleep 0.1; done; "
    "md5sum </large >/sum) >/dev/null 2>&1 &"
)


@pytest.fixture(scope="module")
def disk() -> Iterator[SmallDisk]:
    # Short: socket paths have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix=SMALL_DISK, dir="/tmp"))
    try:
        with small_disk(folder, DISK_MB) as mounted:
            yield mounted
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def instance(disk: SmallDisk) -> Iterator[TestInstance]:
    with new_instance(parent=disk.folder, PLATFORM_DISK_RESERVE_MB=str(RESERVE_MB)) as made:
        made.start()
        yield made
        disk.make_room()


@pytest.fixture(scope="module")
def api(instance: TestInstance) -> Api:
    return instance.api()


def test_a_full_disk_fails_with_documented_errors_and_leaves_nothing_behind(
    instance: TestInstance, api: Api, disk: SmallDisk
) -> None:
    reserve = instance.state / "reserve"
    writer, other, doomed = (api.create(disk_size_mb=160)["id"] for _ in range(3))
    api.output(writer, "echo before >/kept && sync")
    for workspace_id in (other, doomed):  # what is written later, their disks grow
        api.output(workspace_id, "sync")
    boot = api.output(writer, "cat /proc/sys/kernel/random/boot_id")
    until(reserve.exists, 10, "the reserve is held")

    disk.fill(leave_mb=RESERVE_MB - 10)
    until(lambda: refused_for_the_disk(api), 20, "creates are refused")

    # A machine that writes more than there is room for is paused; the others go on.
    api.output(writer, WRITE)
    until(lambda: waits(instance, writer), 60, "the machine that writes is paused")
    until(lambda: works(api, other), 60, "the other machine answers")
    assert not waits(instance, other)

    # Another program takes the rest: the reserve is left for the platform itself.
    disk.fill()
    until(lambda: not reserve.exists(), 10, "the reserve is given up")
    assert metadata_status(api, other) == 200
    api.delete(doomed)

    # And that, too; then every process dies while nothing can be written.
    errors_are_documented(api, disk, writer, other)
    former = instance.pids()
    for pid in former.values():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not set(former.values()) & set(instance.pids().values()), 30, "the processes have ended")

    disk.make_room()
    all_is_as_before(instance, api, writer, other)
    assert api.output(writer, "cat /proc/sys/kernel/random/boot_id /kept").split() == [boot, "before"]
    until(reserve.exists, 30, "the reserve is held again")
    api.delete_all(keep=[])
    assert machine_pids(instance) == {}
    assert list(instance.state.glob("libvirt/log/qemu/*.log")) == []


def test_a_full_disk_costs_a_terminal_no_line_and_changes_no_token(
    instance: TestInstance, api: Api, disk: SmallDisk
) -> None:
    reserve = instance.state / "reserve"
    made = api.call("POST", "/sandbox", 201, json=SANDBOX)["sandbox"]
    path, token = f"/sandbox/{made['id']}", made["token"]
    with connect(made, token) as client:
        shell = client.ask("terminal_created", action="terminal_create", command="sh", args=["-c", COUNT])["terminalId"]
        client.read_until(shell, b"line-10-")
        disk.fill()
        until(lambda: not reserve.exists(), 10, "the reserve is given up")
        for _ in range(5):
            disk.fill()
            answer = api.http.post(f"{path}/regenerate-token", json={})
            assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
            # 503: the machine has written to its own disk, and waits for room already.
            assert command_status(made["url"], token) in {200, 503}
            assert api.http.get(path).status_code == 200
        # From its next write to its own disk on the machine waits for room.
        disk.make_room()
        found = client.read_until(shell, b"line-300-")
        assert found.split() == [b"line-%d-" % number for number in range(1, 301)]
        until(lambda: api.http.post(f"{path}/regenerate-token", json={}).status_code == 200, 60, "a new token is made")
        client.wait_closed()
    assert command_status(made["url"], token) == 403
    api.call("DELETE", path)


def command_status(url: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    body = {"command": "true"}
    return httpx.post(f"{url}/terminal", json=body, headers=headers, timeout=120, trust_env=False).status_code


def refused_for_the_disk(api: Api) -> bool:
    response = api.http.post("/workspace", json={})
    assert (response.status_code, response.json()["code"]) == (503, "VM_UNAVAILABLE")
    return response.json().get("details", {}).get("resource") == "disk_size_mb"


def waits(instance: TestInstance, workspace_id: str) -> bool:
    sql = "SELECT 1 FROM workspaces_activity WHERE action = 'disk_full' AND workspace_id = '{}'"
    return bool(instance.query(sql.format(workspace_id)))


def metadata_status(api: Api, workspace_id: str) -> int:
    return api.http.put(f"/workspace/{workspace_id}/metadata", json=LARGE).status_code


def errors_are_documented(api: Api, disk: SmallDisk, writer: str, other: str) -> None:
    """Requests of every kind, while what processes give back is taken at once."""
    requests = [
        ("GET", f"/workspace/{writer}", None),
        ("PUT", f"/workspace/{other}/metadata", LARGE),
        ("POST", "/tokens", {"scope": "account"}),
        ("POST", f"/workspace/{other}/stop", {}),
        ("POST", f"/workspace/{other}/start", {}),
        ("POST", "/workspace", {}),
    ]
    seen = set()
    for _ in range(10):
        for method, path, body in requests:
            disk.fill()
            response = api.http.request(method, path, json=body)
            assert response.json()["success"] is (response.status_code < 400)
            seen.add(
                (
                    method,
                    path.replace(writer, "A").replace(other, "B"),
                    response.status_code,
                    response.json().get("code"),
                )
            )
    failed = {row for row in seen if row[2] >= 500}
    assert {(status, code) for _, _, status, code in failed} == {(503, "VM_UNAVAILABLE")}, seen
    assert ("GET", "/workspace/A", 200, None) in seen
    assert not [row for row in failed if row[0] == "GET"], seen


def all_is_as_before(instance: TestInstance, api: Api, writer: str, other: str) -> None:
    """By itself: processes, logs, the machine that waited, and what a new request needs."""
    instance.wait_until_serving()
    # The host's next heartbeat is stored within some seconds.
    made = until(lambda: created(api), 60, "a workspace is created")
    api.delete(made)
    log = instance.instance.log_dir / "api.log"
    until(lambda: made in log.read_text(errors="replace"), 10, "the log is written")
    until(lambda: complete(api, writer), 180, "the machine that waited has written all of it")
    assert api.output(writer, "md5sum </large | cmp - /sum && echo same") == "same"
    if api.settles(other)["status"] == "stopped":
        api.power(other, "start")
    until(lambda: works(api, other), 60, "the other machine answers")
    assert metadata_status(api, other) == 200


def works(api: Api, workspace_id: str) -> bool:
    """A guest that the host has no time for is reported as one that does not answer, which may be asked again."""
    answer = api.http.post(f"/workspace/{workspace_id}/exec", json={"cmd": "echo works"})
    if answer.status_code == 503 and answer.json()["code"] == "VM_UNAVAILABLE":
        return False
    assert (answer.status_code, answer.json().get("stdout")) == (200, "works\n"), answer.text
    return True


def created(api: Api) -> str:
    """The id of a new workspace; empty where it is refused."""
    response = api.http.post("/workspace", json=SMALL)
    return response.json()["workspace"]["id"] if response.status_code == 201 else ""


def complete(api: Api, workspace_id: str) -> bool:
    response = api.http.post(f"/workspace/{workspace_id}/exec", json={"cmd": "cat /sum"})
    return response.status_code == 200 and bool(response.json()["stdout"])
