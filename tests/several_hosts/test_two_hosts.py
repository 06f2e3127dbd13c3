"""Machines of two hosts: both reach them as their policies allow, and they reach neither each other nor a host."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import asyncssh
import psycopg
import pytest
import redis

from tests.several_hosts.host_instances import HostInstance, open_port
from tests.vm.client import Api, until
from tests.vm.probes import CONTROL_PORT, reached
from tests.vmbackend.policy.guests import Guest
from tests.vmbackend.policy.peer_hosts import answering

pytestmark = [pytest.mark.vm, pytest.mark.host]

MAKE_TOKEN = """
from django.contrib.auth.models import User
from staff.api_tokens import token_create
user = User.objects.filter(is_superuser=True).first() or User.objects.create_superuser("ada")
print(token_create(user=user, can=("hosts.read", "hosts.act"), ttl_seconds=7200).text)
"""
Hosts = tuple[HostInstance, HostInstance]
Machines = list[dict[str, str]]
OPEN, CLOSED = 8080, 9090


def assert_policies_hold(hosts: Hosts, machines: Machines) -> None:
    for machine in machines:
        for host in hosts:
            assert host.place.connect(machine["ip"], OPEN) == "open", (host.place, machine)
            assert host.place.connect(machine["ip"], CONTROL_PORT) == "open", (host.place, machine)
            assert host.place.connect(machine["ip"], CLOSED) == "refused", (host.place, machine)


def test_both_hosts_reach_the_ports_that_a_policy_opens(hosts: Hosts, machines: Machines) -> None:
    assert_policies_hold(hosts, machines)


def test_hosts_reach_each_other_with_the_keys_of_their_rows(hosts: Hosts) -> None:
    """They fetch files of moved workspaces there."""
    port = hosts[0].settings.private_port + 2
    for host, other in (hosts, hosts[::-1]):
        assert host.settings.private_port + 2 == port
        assert host.place.connect(other.place.address, port) == "open"
        key = asyncssh.read_private_key(host.state / "network/transfer_key").export_public_key().decode()
        rows = hosts[0].query(f"SELECT transfer_key FROM vmbackend_host WHERE name = '{host.place.name}'")
        assert " ".join(key.split()[:2]) in str(rows)


def test_a_changed_policy_holds_for_the_other_host(hosts: Hosts, api: Api, machines: Machines) -> None:
    open_port(hosts[0], api, machines[1]["id"], CLOSED)
    try:
        assert hosts[0].place.connect(machines[1]["ip"], OPEN) == "refused"
        assert hosts[0].place.connect(machines[1]["ip"], CLOSED) == "open"
    finally:
        open_port(hosts[0], api, machines[1]["id"], OPEN)


def test_commands_go_into_machines_of_the_other_host(api: Api, machines: Machines) -> None:
    for machine in machines:
        assert machine["ip"] in api.output(machine["id"], "ip -4 address show dev eth0")


def test_a_machine_reaches_no_machine_of_the_other_host(api: Api, machines: Machines) -> None:
    one, two = machines
    for machine, other in ((one, two), (two, one)):
        assert reached(api, machine["id"], other["ip"], OPEN) == set()


def test_a_machine_opens_nothing_towards_a_host(hosts: Hosts, api: Api, machines: Machines) -> None:
    one, two = (host.place for host in hosts)
    with answering(Guest(two.address, "", two.pid), 7000), answering(Guest(one.address, "", one.pid), 7000):
        assert one.connect(two.address, 7000) == "open"
        assert two.connect(one.address, 7000) == "open"
        for machine in machines:
            for place in (one, two):
                assert "tcp" not in reached(api, machine["id"], place.address, 7000)


def test_nobody_else_on_the_network_reaches_a_machine(hosts: Hosts, machines: Machines) -> None:
    """The first host is a stranger to the second once its row has no address any more."""
    first, second = hosts
    with first.without("vmhost"):
        first.query("UPDATE vmbackend_host SET address = '' WHERE name = 'one' RETURNING name")
        until(lambda: first.place.connect(machines[1]["ip"], OPEN) == "nothing", 10, "the rules follow the row")
        assert second.place.connect(machines[1]["ip"], OPEN) == "open"
    until(lambda: first.place.connect(machines[1]["ip"], OPEN) == "open", 60, "the host reports its address again")
    first.wait_until_serving()


def test_the_rules_outlive_a_vmhost(hosts: Hosts, machines: Machines) -> None:
    for host in hosts:
        host.kill("vmhost")
        assert_policies_hold(hosts, machines)
        host.wait_until_serving()
        assert_policies_hold(hosts, machines)


# Moves


@pytest.fixture(scope="module")
def staff(hosts: Hosts, api: Api) -> Callable[..., dict[str, Any]]:
    """Calls of the API with a token of staff."""
    token = hosts[0].manage("shell", "-v", "0", "-c", MAKE_TOKEN).split()[-1]

    def call(method: str, path: str, **body: Any) -> dict[str, Any]:
        answer = api.http.request(method, path, headers={"Authorization": f"Bearer {token}"}, json=body or None)
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json()
        return found

    for host in call("GET", "/staff/hosts")["hosts"]:
        call("POST", f"/staff/hosts/{host['id']}/activate", reason="a test")
    return call


def moved(staff: Callable[..., dict[str, Any]], workspace: str, to: str) -> dict[str, Any]:
    """Move a workspace, and return the move once it has ended."""
    begun = staff("POST", f"/staff/workspaces/{workspace}/move", to=to, reason="a test")["operation"]
    host = next(row["id"] for row in staff("GET", "/staff/hosts")["hosts"] if row["name"] == to)

    def ended() -> dict[str, Any] | None:
        moves = staff("GET", f"/staff/hosts/{host}")["host"]["moves"]
        found: dict[str, Any] = next(each for each in moves if each["id"] == begun["id"])
        return found if found["finished_at"] else None

    found: dict[str, Any] = until(ended, 60, f"{workspace} moves to {to}")
    assert found["state"] == "succeeded", found
    return found


def test_a_running_machine_moves_to_the_other_host_and_back(
    hosts: Hosts, api: Api, machines: Machines, staff: Callable[..., dict[str, Any]]
) -> None:
    """Its memory and its disk are there; it has an address of the host where it is."""
    machine = machines[0]
    api.output(machine["id"], "echo on the disk > /root/note; sync; (cat > /dev/null & echo $! > /dev/shm/pid); true")
    api.output(machine["id"], "head -c 16 /dev/urandom | base64 > /dev/shm/nonce; cat /dev/shm/nonce")
    before = api.output(machine["id"], "cat /dev/shm/nonce /root/note")
    for to, own in (("two", hosts[1]), ("one", hosts[0])):
        move = moved(staff, machine["id"], to)
        assert move["bytes_done"] > 0
        row = api.reaches(machine["id"], "running")
        machine["ip"] = row["ip"]
        assert row["host"] == to
        assert api.output(machine["id"], "cat /dev/shm/nonce /root/note") == before
        assert machine["ip"] in api.output(machine["id"], "ip -4 address show dev eth0")
        assert own.place.connect(machine["ip"], OPEN) == "open"
        assert move["standstill_seconds"] is None or move["standstill_seconds"] > 0


def test_a_stopped_one_moves_and_starts(
    hosts: Hosts, api: Api, machines: Machines, staff: Callable[..., dict[str, Any]]
) -> None:
    machine = machines[1]
    api.output(machine["id"], "echo on the disk > /root/note; sync")
    api.power(machine["id"], "stop")
    api.reaches(machine["id"], "stopped")
    for to in ("one", "two"):
        moved(staff, machine["id"], to)
        api.power(machine["id"], "start")
        row = api.reaches(machine["id"], "running")
        assert (row["host"], api.output(machine["id"], "cat /root/note")) == (to, "on the disk")
        machine["ip"] = row["ip"]
        if to == "one":
            api.power(machine["id"], "stop")
            api.reaches(machine["id"], "stopped")


# The last ones: the second machine leaves.


def is_let_in(host: HostInstance) -> bool:
    """Return whether its credentials open the database or Redis."""
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
