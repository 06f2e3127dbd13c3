"""What a process loads, and what of it is left to the collector of garbage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from config.celery import app
from config.env import Env
from config.settings import ROLES_WITHOUT_ADMIN
from supervise.instance import Instance
from supervise.processes import processes

LOADED = """
import gc, json, sys
from config.celery import app
import config.serve_tasks
app.loader.import_default_modules()
heavy = ("rest_framework.serializers", "requests", "asyncssh", "acme", "psycopg", "httpcore", "dns", "libvirt")
found = [name for name in heavy if name in sys.modules]
admins = [name for name in sys.modules if name in ("workspaces.admin", "console.panels", "staff.parts.lists")]
print(json.dumps([admins, found, gc.isenabled(), gc.get_freeze_count() > 100_000, "workspaces.tasks" in sys.modules]))
"""


@pytest.mark.parametrize(
    ("role", "admins"), [("worker", []), ("api", ["workspaces.admin", "console.panels", "staff.parts.lists"])]
)
def test_a_worker_loads_its_tasks_and_neither_the_admin_nor_what_few_of_them_use(role: str, admins: list[str]) -> None:
    environment = {**os.environ, "PLATFORM_ROLE": role, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    found, heavy, *others = json.loads(done.stdout)
    assert sorted(found) == sorted(admins)
    assert role == "api" or heavy == ["psycopg"]
    assert others == [True, True, True]


FORKED = """
import json, os
import config.wsgi
found = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.exists(entry.path)]
connections = [name for name in found if "socket" in name]
print(json.dumps([len(os.listdir("/proc/self/task")), connections]))
"""


def test_what_the_api_loads_may_be_forked() -> None:
    """Its workers are forks of a process that has loaded it: threads would be missing in them, connections shared."""
    environment = {**os.environ, "PLATFORM_ROLE": "api", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == [1, []]


BEAT = """
import json, sys
from celery.apps.beat import Beat
from config.app_list import APPS
from config.celery import app
beat = Beat(app=app, quiet=True)
beat.init_loader()
loaded = [name for name in sys.modules if name.endswith((".tasks", ".models")) and name.partition(".")[0] in APPS]
sent = {}
scheduler = beat.Service(app=app, scheduler_cls=app.conf.beat_scheduler).get_scheduler()
app.send_task = lambda name, *_, **options: sent.update({name: options.get("queue")})
for entry in scheduler.schedule.values():
    scheduler.apply_async(entry, producer=None, advance=False)
print(json.dumps([loaded, sent]))
"""


def test_beat_sends_by_names_and_loads_no_task_and_no_model() -> None:
    environment = {**os.environ, "PLATFORM_ROLE": "beat", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", BEAT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    loaded, sent = json.loads(done.stdout)
    assert loaded == []
    assert sent == {entry["task"]: entry.get("options", {}).get("queue") for entry in app.conf.beat_schedule.values()}


def test_a_periodic_task_has_no_options_of_its_own_which_beat_would_not_send() -> None:
    app.loader.import_default_modules()
    own = ("queue", "expires", "priority", "time_limit", "soft_time_limit", "serializer", "routing_key", "exchange")
    for entry in app.conf.beat_schedule.values():
        task = app.tasks[entry["task"]]
        assert {name: getattr(task, name, None) for name in own} == dict.fromkeys(own) | {"serializer": "json"}


def test_the_processes_without_admin_are_those_that_serve_no_request() -> None:
    instance = Instance("000000", Path("/s"), Path("/s"), 8000, IPv4Network("10.200.0.0/20"))
    names = {process.name for process in processes(instance, Env.from_environment({}))}
    assert names - {"postgres", "redis", "api", "streams", "edge"} == ROLES_WITHOUT_ADMIN
