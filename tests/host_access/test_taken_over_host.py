"""Attacks of a host that was taken over: what it could still do to everybody else with its own credentials."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.db import DatabaseError, connection, connections

from common import counters
from common.host_access import policies
from common.host_access.redis_users import create_redis_user, drop_redis_user
from common.host_access.roles import create_host_role, drop_host_role, end_blocking_sessions, list_host_roles
from common.redis import redis_client, redis_key
from hosts.joins import _JOINS
from tests.callers import Caller
from tests.environment import STATE
from tests.host_access.confined_host import logged_in
from tests.threads import wait_until
from tests.workspaces.rows import make_workspace
from vmbackend.models import Host, new_host_id
from workspaces.charging.record_writers import RECORD_WRITERS
from workspaces.models import Workspace

database = pytest.mark.django_db(transaction=True)


@pytest.fixture
def host() -> Iterator[Host]:
    policies.apply_grants()
    made = Host.objects.create(id=new_host_id(), name="taken", subnet="10.201.0.0/20", address="10.9.0.1")
    create_host_role(made.pk)
    yield made
    drop_host_role(made.pk)


def is_allowed(host: Host, *statements: str) -> bool:
    """Return whether the host's role may do all of it, in one transaction that is undone."""
    with logged_in(host.pk) as made, made.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            for statement in statements:
                cursor.execute(statement)
        except DatabaseError:
            return False
        else:
            return bool(cursor.rowcount)
        finally:
            cursor.execute("ROLLBACK")


@database
@pytest.mark.parametrize("ip", ["127.0.0.1", "10.9.0.2", "169.254.169.254", "10.202.0.5"])
def test_a_machine_is_in_the_network_of_its_host(host: Host, api: Caller, ip: str) -> None:
    """The edge sends visitors of public ports there, and the control plane its commands."""
    row = make_workspace(api.account, host_id=host.pk)
    assert not is_allowed(host, f"UPDATE workspaces_workspace SET ip = '{ip}' WHERE id = '{row.pk}'")


@database
@pytest.mark.parametrize("held", ["LOCK TABLE workspaces_workspace IN ACCESS EXCLUSIVE MODE", "a row"])
def test_a_lock_of_a_host_keeps_nobody_waiting_for_long(host: Host, held: str) -> None:
    with logged_in(host.pk) as made, made.cursor() as cursor:
        cursor.execute("BEGIN")
        if held == "a row":
            cursor.execute("SELECT id FROM vmbackend_host WHERE id = %s FOR UPDATE", [host.pk])
        else:
            cursor.execute(held)
        others = [threading.Thread(target=_use, args=[host.pk]), threading.Thread(target=_guard)]
        for other in others:
            other.start()
        for other in others:
            other.join(20)
        assert not any(other.is_alive() for other in others)


def _guard() -> None:
    """Until a session is ended."""
    try:
        wait_until(lambda: end_blocking_sessions(0.1) == 1, 15)
    finally:
        connections.close_all()


def _use(host_id: str) -> None:
    try:
        Host.objects.filter(pk=host_id).update(zone="a")
        list(Workspace.objects.all())
    finally:
        connections.close_all()


@database
@pytest.mark.parametrize("key", [_JOINS, RECORD_WRITERS])
def test_a_host_keeps_no_lock_of_the_platform(host: Host, key: int) -> None:
    assert not is_allowed(host, f"SELECT pg_advisory_lock({key})")


@database
@pytest.mark.parametrize("column", ["last_seen_at", "lease_since", "leaving_at"])
def test_no_time_of_a_host_breaks_what_reads_all_hosts(host: Host, column: str) -> None:
    with logged_in(host.pk) as made, made.cursor() as cursor:
        cursor.execute(f"UPDATE vmbackend_host SET {column} = 'infinity' WHERE id = %s", [host.pk])
    assert host in list(Host.objects.all())


@database
def test_no_time_of_a_machine_breaks_the_list_of_its_account(host: Host, api: Caller) -> None:
    row = make_workspace(api.account, host_id=host.pk)
    with logged_in(host.pk) as made, made.cursor() as cursor:
        cursor.execute("UPDATE workspaces_workspace SET started_at = 'infinity'")
    assert row in list(Workspace.objects.all())


@database
def test_an_open_change_of_its_password_does_not_keep_a_role(host: Host) -> None:
    with logged_in(host.pk) as made, made.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("ALTER ROLE CURRENT_USER PASSWORD 'own'")
        dropping = threading.Thread(target=_drop, args=[host.pk])
        dropping.start()
        dropping.join(10)
    assert host.pk not in list_host_roles()


def _drop(host_id: str) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '3s'")
        drop_host_role(host_id)
    finally:
        connections.close_all()


@database
def test_roles_are_made_and_dropped_at_once(host: Host) -> None:
    failed: list[Exception] = []
    hosts = [new_host_id() for _ in range(8)]
    for act in (create_host_role, drop_host_role):
        together = threading.Barrier(len(hosts))
        threads = [threading.Thread(target=_try, args=[act, one, together, failed]) for one in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for one in hosts:
        drop_host_role(one)
    assert failed == []


def _try(act: Any, host_id: str, together: threading.Barrier, failed: list[Exception]) -> None:
    try:
        list_host_roles()
        together.wait(10)
        for _ in range(5):
            act(host_id)
    except DatabaseError as exc:
        failed.append(exc)
    finally:
        connections.close_all()


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    host_id = new_host_id()
    password = create_redis_user(host_id)
    with redis.Redis(unix_socket_path=str(STATE / "redis.sock"), username=host_id, password=password) as made:
        yield made
    drop_redis_user(host_id)
    redis_client().delete(redis_key(f"counters:{host_id}"), redis_key(f"rpc:{host_id}:x"), redis_key("operation:op_x"))


def own_id(client: redis.Redis) -> str:
    return str(client.get_connection_kwargs()["username"])


@pytest.mark.parametrize("value", ["abc", "nan", b"\xff"])
def test_counters_of_a_host_do_not_break_those_of_all(client: redis.Redis, value: Any) -> None:
    client.hset(redis_key(f"counters:{own_id(client)}"), "x", value)
    values = counters.read_values([own_id(client)]).get("x", {})
    assert all(number == number for number in values.values())


def test_the_field_of_a_counter_is_text(client: redis.Redis) -> None:
    client.hset(redis_key(f"counters:{own_id(client)}"), b"\xff", "1")
    counters.read_values([own_id(client)])


def test_nothing_stays_in_memory_of_a_host_that_is_removed(client: redis.Redis) -> None:
    key = redis_key(f"rpc:{own_id(client)}:x")
    client.rpush(key, "x")
    drop_redis_user(own_id(client))
    assert not redis_client().exists(key)


def test_the_wake_up_of_another_operation_stays_a_list(client: redis.Redis) -> None:
    key = redis_key("operation:op_x")
    try:
        client.set(key, "x")
    except redis.ResponseError:
        return
    assert redis_client().type(key) == b"list"
