"""Two hosts with one machine each, reached through the API of the first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.several_hosts.host_instances import HostInstance, open_port, two_hosts
from tests.several_hosts.places import places
from tests.vm.client import Api


@pytest.fixture(scope="package")
def hosts() -> Iterator[tuple[HostInstance, HostInstance]]:
    with places("one", "two") as (one, two), two_hosts(one, two) as made:
        yield made


@pytest.fixture(scope="package")
def api(hosts: tuple[HostInstance, HostInstance]) -> Api:
    return hosts[0].api()


@pytest.fixture(scope="package")
def machines(hosts: tuple[HostInstance, HostInstance], api: Api) -> list[dict[str, str]]:
    """`id` and `ip` of a machine of each host. Only ports 8080 and 9090 answer, and 9090 is closed by policy."""
    return [_machine_on(host, hosts[0], api) for host in hosts]


def _machine_on(host: HostInstance, first: HostInstance, api: Api) -> dict[str, str]:
    state = f"CASE name WHEN '{host.place.name}' THEN 'active' ELSE 'draining' END"
    first.query(f"UPDATE vmbackend_host SET state = {state} RETURNING name")
    made = api.create()
    open_port(first, api, made["id"], 8080)
    placed = first.query(
        "SELECT host.name FROM vmbackend_host host JOIN workspaces_workspace made ON made.host_id = host.id "
        f"WHERE made.id = '{made['id']}'"
    )
    assert placed == [(host.place.name,)]
    api.output(made["id"], "httpd -p 8080; httpd -p 9090")
    return {"id": made["id"], "ip": made["ip"]}
