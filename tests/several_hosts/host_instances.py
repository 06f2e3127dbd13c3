"""Instances that run in a place of their own: a whole one, and a machine that has joined it as its second host.

Bridges and tables of one name, and processes that belong to one instance, are kept apart by the namespaces.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from supervise import join_request
from supervise.configuration import process_environment
from tests.several_hosts.places import Place
from tests.vm.client import Api, until
from tests.vm.instances import START_SECONDS, TestInstance, new_instance

JOIN = join_request.__file__


class HostInstance(TestInstance):
    """An instance whose processes run in a place."""

    __test__ = False

    def __init__(self, place: Place, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.place = place

    @property
    def environment(self) -> dict[str, str]:
        made = process_environment(self.instance, self.settings)
        return made | {"PYTHONPATH": f"{Path.cwd()}:{made['PYTHONPATH']}"}

    def start_processes(self) -> None:
        command = [sys.executable, "-m", "tests.several_hosts.start", str(self.state), str(self.instance.port)]
        self.place.run(command, self.environment)

    def kill(self, *names: str) -> None:
        """Kill these processes, by the ids that they have in the place, and wait until they are there again."""
        before = self._started_pids()
        self.place.run(["kill", "-KILL", *(str(before[name]) for name in names)])

        def started_again() -> bool:
            now = self._started_pids()
            return all(now.get(name) not in (None, before[name]) for name in names)

        until(started_again, START_SECONDS, f"{', '.join(names)} come back")

    def wait_until_serving(self) -> None:
        if "edge" in self.settings.machine_roles:
            super().wait_until_serving()
        self.wait_until_running()
        ready = f"SELECT name FROM vmbackend_host WHERE problem = '' AND name = '{self.place.name}'"
        until(lambda: self.query(ready), START_SECONDS, f"the host {self.place.name} is ready")

    def manage(self, *words: str) -> str:
        """Run a management command in the place; return its output."""
        return self.place.run([sys.executable, str(Path.cwd() / "manage.py"), *words], self.environment)

    def token(self, name: str) -> tuple[str, str]:
        """Open the instance to other machines; return address and token with which one joins as this host."""
        command = [sys.executable, "-m", "supervise", "host-token", self.place.address, name]
        line = self.place.run(command, self.environment).splitlines()[-1]
        control, token = line.removeprefix("make join CONTROL=").split(" TOKEN=")
        return control, token


@contextmanager
def two_hosts(one: Place, two: Place) -> Iterator[tuple[HostInstance, HostInstance]]:
    """Both, started: the second one joins as any machine does."""
    own = {"PLATFORM_HOST_NAME": one.name, "PLATFORM_BIND": one.address}
    with new_instance(kind=partial(HostInstance, one), **own) as first:
        first.start()
        with new_instance(kind=partial(joined_instance, first, two)) as second:
            second.start()
            yield first, second  # type: ignore[misc]


def joined_instance(first: HostInstance, place: Place, folder: Path, **settings: Any) -> HostInstance:
    """Let the machine of a place join, before anything else is made there."""
    control, token = first.token(place.name)
    place.run([sys.executable, JOIN, control, token, str(folder / "s")])
    return HostInstance(place, folder, **settings)


def open_port(first: HostInstance, api: Api, workspace_id: str, port: int) -> None:
    """Let a machine have one open port; return when its host has applied that."""
    api.call("PATCH", f"/workspace/{workspace_id}/network", json={"ingress_ports": [port]})
    applied = f"SELECT id FROM workspaces_workspace WHERE id = '{workspace_id}' AND NOT network_stale"
    until(lambda: first.query(applied), 30, f"the policy of {workspace_id} is applied")
