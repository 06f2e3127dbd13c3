"""Parts of workers beside their tasks: begun by the role of a process, and known to no list."""

from __future__ import annotations

import ast
from inspect import getsource
from ipaddress import IPv4Network
from pathlib import Path

from common.work.dispatcher import Dispatcher
from common.work.processes import DispatcherProcess
from config import celery
from config.app_list import APPS, app_modules
from config.env import Env
from supervise.instance import Instance
from supervise.processes import processes


class Idle(Dispatcher[None]):
    LOOK_SECONDS = 0.01

    def run_pass(self) -> int:
        return 0

    @property
    def is_busy(self) -> bool:
        return False


def test_the_worker_knows_no_app_by_name() -> None:
    tree = ast.walk(ast.parse(getsource(celery)))
    imported = {node.module or "" for node in tree if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} & set(APPS) == set()


def test_each_role_is_that_of_a_process_which_is_started() -> None:
    roles = {module.PROCESS.role for module in app_modules("process")}
    assert roles == {"hooks", "push", "pages", "vmhost"}
    instance = Instance("000000", Path("/s"), Path("/s"), 8000, IPv4Network("10.200.0.0/20"))
    assert roles <= {each.name for each in processes(instance, Env.from_environment({}))}


def test_a_dispatcher_lives_as_long_as_its_process() -> None:
    made: list[Idle] = []

    def build() -> Idle:
        made.append(Idle("idle", 1))
        return made[-1]

    process = DispatcherProcess("idle", build)
    for call in (process.wake, process.end_soon, process.end):
        call()  # in another process, which has none
    process.begin()
    process.wake()
    process.end_soon()
    process.end()
    process.end()
    assert [each._thread.is_alive() for each in made] == [False]
