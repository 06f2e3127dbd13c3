"""Instances that run in a place of their own: one whole, and a second host that has a vmhost only.

The second one uses database, Redis and keys of the first, over sockets in the file system, which both see, so these
tests say nothing of a database that is reached over a network. Its processes have the id of the first, without which
they would have other keys in Redis and no wake-up would arrive. Bridges and tables of one name, and processes that
belong to one instance, are kept apart by the namespaces.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from supervise.configuration import process_environment
from tests.hosts.places import Place
from tests.vm.client import Api, until
from tests.vm.instances import START_SECONDS, TestInstance, new_instance


class HostInstance(TestInstance):
    """An instance whose processes run in a place. `joined`: the one whose second host it is, with a vmhost only."""

    __test__ = False

    def __init__(self, place: Place, joined: HostInstance | None, folder: Path, **settings: Any) -> None:
        host = {"PLATFORM_HOST_NAME": place.name, "PLATFORM_HOST_ADDRESS": place.address}
        super().__init__(folder, **host, PLATFORM_BIND=place.address, **settings)
        self.place = place
        self._joined = joined

    def start_processes(self) -> None:
        what = (self._joined.id, "vmhost") if self._joined else (self.id,)
        command = [sys.executable, "-m", "tests.hosts.start", str(self.state), str(self.instance.port), *what]
        environment = process_environment(self.instance, self.settings)
        environment["PYTHONPATH"] = f"{Path.cwd()}:{environment['PYTHONPATH']}"
        self.place.run(command, environment)

    def kill(self, *names: str) -> None:
        """Kill these processes, by the ids that they have in the place, and wait until they are there again."""
        before = self._started_pids()
        self.place.run(["kill", "-KILL", *(str(before[name]) for name in names)])

        def started_again() -> bool:
            now = self._started_pids()
            return all(now.get(name) not in (None, before[name]) for name in names)

        until(started_again, START_SECONDS, f"{', '.join(names)} come back")

    def wait_until_serving(self) -> None:
        if self._joined is None:
            super().wait_until_serving()
        self.wait_until_running()
        ready = f"SELECT name FROM vmbackend_host WHERE problem = '' AND name = '{self.place.name}'"
        until(lambda: self.query(ready), START_SECONDS, f"the host {self.place.name} is ready")


@contextmanager
def two_hosts(one: Place, two: Place) -> Iterator[tuple[HostInstance, HostInstance]]:
    """Both, started."""
    key = {"PLATFORM_SECRET_KEY": "of-two-hosts-in-tests-" + "x" * 30}
    with new_instance(kind=partial(HostInstance, one, None), PLATFORM_SUBNET="10.131.0.0/20", **key) as first:
        first.start()
        shared = {
            "PLATFORM_DATABASE_URL": first.settings.database_url,
            "PLATFORM_REDIS_URL": first.settings.redis_url,
            "PLATFORM_DEMO": "false",
            **key,
        }
        kind = partial(HostInstance, two, first)
        with new_instance(kind=kind, PLATFORM_SUBNET="10.132.0.0/20", **shared) as second:
            # Commands go from the first host into guests of the second with the key of the first.
            shutil.copytree(first.state / "keys", second.state / "keys", dirs_exist_ok=True)
            second.start()
            yield first, second  # type: ignore[misc]


def open_port(first: HostInstance, api: Api, workspace_id: str, port: int) -> None:
    """Let a machine have one open port; return when its host has applied that."""
    api.call("PATCH", f"/workspace/{workspace_id}/network", json={"ingress_ports": [port]})
    applied = f"SELECT id FROM workspaces_workspace WHERE id = '{workspace_id}' AND NOT network_stale"
    until(lambda: first.query(applied), 30, f"the policy of {workspace_id} is applied")
