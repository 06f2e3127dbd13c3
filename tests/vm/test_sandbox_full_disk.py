"""The host's disk is full under a sandbox in use: what is refused says why, and its terminal loses nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.small_disk import SMALL_DISK, SmallDisk, small_disk
from tests.vm.client import until
from tests.vm.images import BUSYBOX
from tests.vm.instances import TestInstance, new_instance
from tests.vm.sandbox_sockets import connect

pytestmark = pytest.mark.vm

COUNT = "i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo line-$i-; sleep 0.05; done"
NEW = {"name": "agent", "image": BUSYBOX, "config": {"memory_mb": 128, "disk_size_mb": 64, "cpus": 1}}


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    folder = Path(tempfile.mkdtemp(prefix=SMALL_DISK, dir="/tmp"))  # short, for the paths of sockets
    try:
        with small_disk(folder, 300) as mounted:
            yield mounted
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def instance(disk: SmallDisk) -> Iterator[TestInstance]:
    with new_instance(parent=disk.folder, PLATFORM_DISK_RESERVE_MB="16") as made:
        made.start()
        yield made
        disk.make_room()


def command_status(url: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    body = {"command": "true"}
    return httpx.post(f"{url}/terminal", json=body, headers=headers, timeout=120, trust_env=False).status_code


def test_a_full_disk_costs_a_terminal_no_line_and_changes_no_token(instance: TestInstance, disk: SmallDisk) -> None:
    api = instance.api()
    made = api.call("POST", "/sandbox", 201, json=NEW)["sandbox"]
    path, token = f"/sandbox/{made['id']}", made["token"]
    with connect(made, token) as client:
        shell = client.ask("terminal_created", action="terminal_create", command="sh", args=["-c", COUNT])["terminalId"]
        client.read_until(shell, b"line-10-")
        for _ in range(5):
            disk.fill()
            answer = api.http.post(f"{path}/regenerate-token", json={})
            assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
            # 503: the machine has written to its own disk, and waits for room already.
            assert command_status(made["url"], token) in {200, 503}
            assert api.http.get(path).status_code == 200
        # From its next write to its own disk on the machine waits for room.
        disk.make_room()
        found = client.read_until(shell, b"line-150-")
        assert found.split() == [b"line-%d-" % number for number in range(1, 151)]
        until(lambda: api.http.post(f"{path}/regenerate-token", json={}).status_code == 200, 60, "a new token is made")
        client.wait_closed()
    assert command_status(made["url"], token) == 403
    api.call("DELETE", path)
