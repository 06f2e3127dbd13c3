"""The commands behind the Makefile on real machines: up with the default image, down, up again, and away with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.supervise import control
from tests.vm.conftest import boot_of
from tests.vm.instances import TestInstance, is_alive, new_instance
from tests.vm.onhost import assert_nothing_is_left_over, machine_pids

pytestmark = pytest.mark.vm


@pytest.fixture
def own() -> Iterator[TestInstance]:
    """An instance with the image that `make up` builds for its first workspace."""
    with new_instance(PLATFORM_DEFAULT_IMAGE="localhost/workspace:latest") as made:
        yield made


# The image is built by the first run of a machine, with packages from Debian.
@pytest.mark.timeout(900)
def test_machines_run_on_through_down_and_up(own: TestInstance) -> None:
    up = own.command("up")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "first$ uname -a" in up.stdout
    api = own.api()
    (first,) = api.rows()
    boot, pids = boot_of(api, first["id"]), machine_pids(own)
    assert api.output(first["id"], "echo in-memory >/dev/shm/nonce; python3 -c 'print(6*7)'") == "42"

    down = own.command("down")
    assert down.returncode == 0, down.stdout + down.stderr
    assert own.process_tree() == {}
    assert machine_pids(own) == pids

    # From here on no new machine fits, and one that runs is not asked to fit.
    own.settings["PLATFORM_MEMORY_RESERVE_MB"] = "100000000"
    again = own.command("up")
    assert again.returncode == 0, again.stdout + again.stderr
    assert machine_pids(own) == pids
    assert api.output(first["id"], ["cat", "/dev/shm/nonce"]) == "in-memory"
    assert boot_of(api, first["id"]) == boot
    refused = api.create(expect=503)
    assert refused["error"] == "VM_UNAVAILABLE"
    assert "memory" in refused["message"]
    assert [row["id"] for row in api.rows()] == [first["id"]]
    assert_nothing_is_left_over(own, api, seconds=1)

    assert api.power(first["id"], "stop")["status"] == "stopped"
    refused = api.call("POST", f"/workspace/{first['id']}/start", 503)
    assert refused["error"] == "VM_UNAVAILABLE"
    assert api.get(first["id"])["status"] == "stopped"
    _assert_clean_removes_what_a_killed_supervisor_left(own)


def _assert_clean_removes_what_a_killed_supervisor_left(own: TestInstance) -> None:
    orphans = own.pids()
    supervisor = control.supervisor_pid(own.instance)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    cleaned = own.command("clean")
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    assert machine_pids(own) == {}
    assert own.process_tree() == {}
    assert not [name for name, pid in orphans.items() if is_alive(pid)]
    assert not own.state.exists()
    assert not [link.name for link in Path("/sys/class/net").iterdir() if own.id in link.name]
