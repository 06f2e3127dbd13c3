"""The commands behind the Makefile on real machines: up with the default image, down, up again, and removal."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.postgres_server import running_server
from tests.vm.client import Api
from tests.vm.conftest import boot_of
from tests.vm.instances import TestInstance, new_instance
from tests.vm.onhost import assert_nothing_is_left_over, machine_pids

pytestmark = pytest.mark.vm


@pytest.fixture
def own() -> Iterator[TestInstance]:
    """An instance with the image that `make up` builds for its first workspace."""
    with new_instance(PLATFORM_DEFAULT_IMAGE="localhost/workspace:latest") as made:
        yield made


# The default image is built by the first run on a host, with packages from Debian.
@pytest.mark.timeout(1800)
def test_machines_run_on_through_down_and_up_unless_a_setting_says_otherwise(own: TestInstance) -> None:
    up = own.command("up")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "first$ uname -a" in up.stdout
    api = own.api()
    (first,) = api.rows()
    boot, pids = boot_of(api, first["id"]), machine_pids(own)
    assert_has_tools(api, first["id"])
    api.output(first["id"], "echo in-memory >/dev/shm/nonce")

    down = own.command("down")
    assert down.returncode == 0, down.stdout + down.stderr
    assert own.process_tree() == {}
    assert machine_pids(own) == pids

    # From here on there is no capacity for a new machine; a running one needs no check.
    changes = {"memory_reserve_mb": 100_000_000, "stop_vms_on_down": True}
    own.settings = own.settings.model_copy(update=changes)
    again = own.command("up")
    assert again.returncode == 0, again.stdout + again.stderr
    assert machine_pids(own) == pids
    assert api.output(first["id"], ["cat", "/dev/shm/nonce"]) == "in-memory"
    assert boot_of(api, first["id"]) == boot
    refused = api.create(expect=503)
    assert refused["error"] == "VM_UNAVAILABLE"
    assert "memory" in refused["message"]
    assert [row["id"] for row in api.rows()] == [first["id"]]
    assert_nothing_is_left_over(own, api, at_once=True)

    down = own.command("down")
    assert down.returncode == 0, down.stdout + down.stderr
    assert machine_pids(own) == {}, (own.state / "log" / "vmhost.log").read_text()[-8_000:]
    with running_server(own.instance, own.settings):
        assert own.query("SELECT status, user_requested_stop FROM workspaces_workspace") == [("stopped", False)]
    assert "powering off" in (own.state / "machines" / first["id"] / "boot.log").read_text()
    _assert_clean_removes_all(own)


TOOLS = "curl git jq less make nano pip ps python3 ssh sudo tmux unzip vi wget xz"
SERVE = """cd /tmp && echo published >index.html
python3 -m http.server 8000 >/dev/null 2>&1 &
for attempt in $(seq 100); do curl -sf localhost:8000 && exit; sleep 0.2; done; exit 1"""


def assert_has_tools(api: Api, workspace_id: str) -> None:
    """What a newcomer tries first."""
    assert api.output(workspace_id, f"for tool in {TOOLS}; do command -v $tool >/dev/null || echo $tool; done") == ""
    assert api.output(workspace_id, "python3 -c 'import json, sqlite3, ssl, venv, ensurepip; print(6*7)'") == "42"
    assert api.output(workspace_id, SERVE) == "published"


def _assert_clean_removes_all(own: TestInstance) -> None:
    cleaned = own.command("clean")
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    assert not own.state.exists()
    assert not [link.name for link in Path("/sys/class/net").iterdir() if own.id in link.name]
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    assert own.id not in tables
