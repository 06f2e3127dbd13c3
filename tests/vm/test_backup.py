"""A backup of an instance that runs, restored into another folder, where its sleeping workspace wakes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervise.backup.manifest import read_manifest
from supervise.instance import ROOT
from tests.vm.client import Api
from tests.vm.instances import SETTINGS, TestInstance, instance_in, new_instance

pytestmark = pytest.mark.vm


@dataclass(frozen=True, slots=True)
class Workspaces:
    asleep: str
    stopped: str
    running: str


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mvb-", dir="/tmp"))
    yield made
    # The watcher of the restored instance removes it, too.
    shutil.rmtree(made, ignore_errors=True)


def run_restore(backup: Path, folder: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    own = {"STATE": str(folder / "s"), "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    command = [sys.executable, "-m", "supervise", "restore", str(backup), str(folder / "s"), ""]
    environment = {**os.environ, **SETTINGS, **settings, **own}
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


def prepare_workspaces(original: TestInstance, api: Api) -> Workspaces:
    made = Workspaces(*(api.create()["id"] for _ in range(3)))
    for each in (made.asleep, made.stopped):
        api.output(each, f"echo {each} > /root/name && sync && mkdir /m && mount -t tmpfs none /m")
        api.output(each, "echo kept > /m/memory")
    api.power(made.stopped, "stop")
    done = original.command("manage", "--", "workspace_sleep", made.asleep)
    assert done.returncode == 0, done.stderr
    return made


# Two instances of its own are prepared and started, one after the other.
@pytest.mark.timeout(1800)
def test_a_sleeping_workspace_of_a_backup_wakes_in_another_folder(folder: Path) -> None:
    backups = folder / "backups"
    with new_instance(PLATFORM_CACHE_DIR=str(folder / "c1")) as original:
        original.start()
        api = original.api()
        made = prepare_workspaces(original, api)
        done = original.command("backup", str(backups))
        assert done.returncode == 0, done.stderr
        refused = run_restore(next(backups.glob("2*")), folder, {})
        assert (refused.returncode, "is on this host" in refused.stderr) == (1, True)
    backup = next(backups.glob("2*"))
    manifest = read_manifest(backup)
    assert (sorted(manifest.machines), manifest.omitted) == (sorted([made.asleep, made.stopped]), [made.running])
    own_server = {"PLATFORM_DATABASE_URL": ""}
    settings = {"PLATFORM_CACHE_DIR": str(folder / "c2"), "PLATFORM_HOST_NAME": manifest.host_name, **own_server}
    done = run_restore(backup, folder, settings)
    assert done.returncode == 0, done.stderr
    with instance_in(folder, images=False, **settings) as restored:
        assert restored.id == manifest.instance
        restored.start()
        api = restored.api()
        assert api.get(made.asleep)["status"] == "sleeping"
        # The host's row came with the backup; the host is not there before its own first heartbeat.
        api.patiently("POST", f"/workspace/{made.asleep}/resume")
        assert api.output(made.asleep, "cat /root/name /m/memory").split() == [made.asleep, "kept"]
        api.power(made.stopped, "start")
        assert api.output(made.stopped, "cat /root/name") == made.stopped
        api.reaches(made.running, "lost")
