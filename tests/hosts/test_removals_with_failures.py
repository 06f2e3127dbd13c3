"""Removals of hosts while Redis is away or busy, as with a script of that very host, and methods that no route has."""

from __future__ import annotations

import contextlib

import pytest
import redis
from django.test import Client

from common.host_access.roles import create_host_role, list_host_roles
from hosts import credentials
from hosts.services import host_remove, remove_former_credentials
from tests.hosts import rows
from vmbackend.models import Host

pytestmark = pytest.mark.django_db(transaction=True)


def _busy(_host_id: str) -> None:
    raise redis.exceptions.ResponseError("BUSY Redis is busy running a script.")


def test_the_role_ends_though_redis_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    host = rows.joined_host()
    create_host_role(host.pk)
    monkeypatch.setattr(credentials, "drop_redis_user", _busy)
    host_remove(host_id=host.pk)
    assert host.pk not in list_host_roles()


def test_one_that_cannot_be_dropped_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    former = {rows.joined_host().pk for _ in range(3)}
    for host_id in former:
        create_host_role(host_id)
    Host.objects.filter(pk__in=former).delete()
    asked: list[str] = []

    def refuse(host_id: str) -> None:
        asked.append(host_id)
        if len(asked) == 1:
            _busy(host_id)

    monkeypatch.setattr(credentials, "drop_redis_user", refuse)
    with contextlib.suppress(redis.RedisError):
        remove_former_credentials()
    assert list_host_roles() & former <= set(asked[:1])
    monkeypatch.undo()
    remove_former_credentials()


@pytest.mark.parametrize("method", ["post", "put"])
def test_a_method_that_a_route_has_not_is_405(client: Client, method: str) -> None:
    client.raise_request_exception = False
    response = getattr(client, method)("/staff/hosts/host_x", headers={"Authorization": f"Bearer {rows.staff_token()}"})
    assert response.status_code == 405
