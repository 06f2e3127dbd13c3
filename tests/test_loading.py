"""What a process loads, and what of it is left to the collector of garbage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from config.env import Env
from config.settings import ROLES_WITHOUT_ADMIN
from supervise.instance import Instance
from supervise.processes import processes

LOADED = """
import gc, json, sys
from config.celery import app
app.loader.import_default_modules()
admins = [name for name in sys.modules if name in ("workspaces.admin", "dashboard.panels", "common.admin_lists")]
print(json.dumps([admins, gc.isenabled(), gc.get_freeze_count() > 100_000, "workspaces.tasks" in sys.modules]))
"""


@pytest.mark.parametrize(
    ("role", "admins"), [("worker", []), ("api", ["workspaces.admin", "dashboard.panels", "common.admin_lists"])]
)
def test_a_worker_loads_its_tasks_and_no_admin_and_collects_afterwards(role: str, admins: list[str]) -> None:
    environment = {**os.environ, "PLATFORM_ROLE": role, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    found, *others = json.loads(done.stdout)
    assert sorted(found) == sorted(admins)
    assert others == [True, True, True]


def test_the_processes_without_admin_are_those_that_serve_no_request() -> None:
    instance = Instance("000000", Path("/s"), Path("/s"), 8000, IPv4Network("10.200.0.0/20"))
    names = {process.name for process in processes(instance, Env.from_environment({}))}
    assert names - {"redis", "api", "streams", "edge"} == ROLES_WITHOUT_ADMIN
