"""A host whose machine is replaced, or has lost its credentials, and what a machine that joined may start as."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connection

from hosts import tokens
from tests.hosts.rows import joined_host
from tests.hosts.test_joins import join, machine, opened
from tests.workspaces.rows import end_leases, renew_leases
from vmbackend import services
from vmbackend.errors import HostNameHeld, HostRemoved
from vmbackend.models import Host

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["opened"]


def test_another_machine_becomes_a_host_that_there_is() -> None:
    host = joined_host("two")
    token = tokens.token_create(host=host, actor="test").text
    answer = join(token, **machine(7, hostname="other"))
    assert answer.status_code == 201, answer.content
    assert answer.json()["host"] == {"id": host.pk, "name": "two", "subnet": host.subnet}
    host.refresh_from_db()
    assert (host.machine_id, host.address) == (f"{7:016x}", "192.0.2.7")
    assert Host.objects.count() == 1


def test_it_does_not_while_the_machine_of_before_reports() -> None:
    host = joined_host("two")
    renew_leases(pk=host.pk)
    token = tokens.token_create(host=host, actor="test").text
    answer = join(token, **machine(7))
    assert (answer.status_code, answer.json()["code"]) == (409, "machine_joined")
    end_leases(pk=host.pk)
    assert join(token, **machine(7)).status_code == 201


def test_a_machine_that_is_another_host_does_not_become_this_one() -> None:
    one, two = joined_host("one"), joined_host("two")
    token = tokens.token_create(host=two, actor="test").text
    answer = join(token, **machine(7, machine_id=one.machine_id))
    assert (answer.status_code, answer.json()["code"]) == (409, "machine_joined")


@pytest.fixture
def own_role(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets this process have the role of a host, as far as it looks at its name."""

    def have(host: Host) -> None:
        monkeypatch.setitem(connection.settings_dict, "USER", host.pk)

    return have


def test_a_machine_starts_as_the_host_that_it_joined_as_whatever_it_is_called(own_role: Any) -> None:
    host = joined_host("two")
    own_role(host)
    assert services.find_host_id(name="renamed", claim=f"{host.machine_id} boot") == host.pk


def test_a_machine_that_was_replaced_or_removed_starts_no_more(own_role: Any) -> None:
    host = joined_host("two")
    own_role(host)
    with pytest.raises(HostRemoved):
        services.find_host_id(name="two", claim="another boot")
    Host.objects.all().delete()
    with pytest.raises(HostRemoved):
        services.find_host_id(name="two", claim=f"{host.machine_id} boot")


def test_a_copy_of_a_machine_that_runs_is_refused(own_role: Any, settings: LazySettings) -> None:
    host = joined_host("two")
    own_role(host)
    Host.objects.update(claim=f"{host.machine_id} first")
    renew_leases(pk=host.pk)
    with pytest.raises(HostNameHeld):
        services.find_host_id(name="two", claim=f"{host.machine_id} second")
    end_leases(pk=host.pk)
    assert services.find_host_id(name="two", claim=f"{host.machine_id} second") == host.pk
