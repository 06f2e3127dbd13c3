"""The process vmhost with nothing but a host's own credentials: its role, its user in Redis, the data key."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from common.host_access.policies import apply_grants
from common.host_access.redis_users import create_redis_user, drop_redis_user
from common.host_access.roles import create_host_role, drop_host_role
from common.redis import redis_client
from supervise.instance import ROOT
from tests.callers import Caller
from tests.environment import STATE
from vmbackend.models import Host, new_host_id
from workspaces.models import MeterRecord, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def environment(host: str, password: str, state: Path) -> dict[str, str]:
    """The environment of a process on a machine that joined."""
    database = connection.settings_dict
    own = {name: value for name, value in os.environ.items() if not name.startswith("PLATFORM_")}
    return own | {
        "PLATFORM_STATE": str(state),
        "PLATFORM_ROLE": "vmhost",
        "PLATFORM_HOST_NAME": "joined",
        "PLATFORM_VM_BACKEND": "fake",
        "PLATFORM_DATA_KEY": settings.SECRET_KEY,
        "PLATFORM_DATABASE_URL": f"postgresql://{host}@/{database['NAME']}?host={database['HOST']}",
        "PLATFORM_REDIS_URL": f"unix://{host}:{password}@{STATE}/redis.sock",
        "PLATFORM_DISK_RESERVE_MB": "0",
        "PLATFORM_POOL_MEMORY_MB": "0",
        "PLATFORM_METERING_SECONDS": "1",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
    }


def eventually(happened: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 90
    while not happened():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)


@pytest.fixture
def joined(transactional_db: None, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    apply_grants()
    host = new_host_id()
    Host.objects.create(id=host, name="joined", subnet="10.201.0.0/20")
    create_host_role(host)
    given = environment(host, create_redis_user(host), tmp_path / "state")
    (tmp_path / "state").mkdir()
    redis_client().execute_command("ACL", "LOG", "RESET")
    command = [sys.executable, "-m", "config.serve_tasks", "worker", "--pool", "threads", "-c", "4"]
    command += ["-Q", f"host.{host}", "-n", "vmhost@%h", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=given, cwd=ROOT, stdout=output, stderr=output)
    yield host, process, log
    process.terminate()
    process.wait(60)
    drop_redis_user(host)
    drop_host_role(host)


def test_it_makes_a_machine_meters_it_and_deletes_it(
    joined: tuple[str, subprocess.Popen[bytes], Path], api: Caller
) -> None:
    host, process, log = joined
    eventually(lambda: Host.objects.get().answers, process, log)
    made = api.post("/workspace", {"name": "box", "image": "localhost/tiny:1", "env": ["A=1"]})
    assert made.status_code == 201, (made.json(), log.read_text())
    row = Workspace.objects.get()
    assert (row.host_id, row.status) == (host, "running")
    eventually(lambda: MeterRecord.objects.exists(), process, log)
    assert api.get(f"/workspace/{row.pk}/logs?source=boot").status_code == 200
    assert api.delete(f"/workspace/{row.pk}").status_code in (200, 202)
    eventually(lambda: not Workspace.objects.exists(), process, log)
    refused = redis_client().execute_command("ACL", "LOG")
    assert refused == [], refused
    assert "permission denied" not in log.read_text()
    assert "row-level security" not in log.read_text()
