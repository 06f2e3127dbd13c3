"""The second machine leaves, after all that other files of this folder do with it."""

from __future__ import annotations

import sys

import psycopg
import pytest
import redis

from tests.several_hosts.host_instances import HostInstance
from tests.vm.client import Api, until

pytestmark = [pytest.mark.vm, pytest.mark.host]

Hosts = tuple[HostInstance, HostInstance]


def is_let_in(host: HostInstance) -> bool:
    """Whether its credentials open the database or Redis."""
    try:
        with redis.Redis.from_url(host.settings.redis_url, socket_timeout=5) as client:
            client.ping()
    except redis.RedisError:
        try:
            psycopg.connect(host.settings.database_url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
    return True


def run_leave(host: HostInstance) -> str:
    """Run `make leave` in the host's place; return its output, also of one that was refused."""
    command = f"{sys.executable} -m supervise leave; true"
    return host.place.run(["sh", "-c", f"({command}) 2>&1"], host.environment)


def test_a_machine_with_workspaces_stays(hosts: Hosts, machines: list[dict[str, str]]) -> None:
    assert "has workspaces" in run_leave(hosts[1])
    assert is_let_in(hosts[1])


def test_a_machine_that_has_left_is_let_in_no_more(hosts: Hosts, api: Api, machines: list[dict[str, str]]) -> None:
    first, second = hosts
    api.call("DELETE", f"/workspace/{machines[1]['id']}")
    left = f"SELECT id FROM workspaces_workspace WHERE id = '{machines[1]['id']}'"
    until(lambda: not first.query(left), 60, "its workspace is deleted")
    assert "removed" in run_leave(second)
    assert not is_let_in(second)
    assert first.query("SELECT name FROM vmbackend_host") == [("one",)]
    assert not second.state.exists()
