"""Placement: which host a new workspace gets, and how many queries that costs while the account's row is locked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts.models import Account
from common.errors import VMUnavailable
from tests.callers import Caller
from tests.workspaces.rows import make_host, make_workspace
from tests.workspaces.workspace_states import no_free_waiting_place
from vmbackend.models import Host
from vmbackend.services import host_delete
from workspaces import placement
from workspaces.models import Workspace
from workspaces.quota import Amount
from workspaces.states import Status

pytestmark = pytest.mark.django_db

SMALL = Amount(1000, 512, 1024)


@pytest.fixture(autouse=True)
def no_overcommit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host has exactly the memory that its row says."""
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"memory_overcommit": 1.0}))
    monkeypatch.setattr(settings.ENV, "memory_reserve_mb", 0)


def add_hosts(until: int, account: Account) -> None:
    """Hosts, `until` of them in all, with a running, a stopped and a sleeping workspace each."""
    for index in range(Host.objects.count(), until):
        host = make_host(f"host-{index:03}")
        for offset, status in enumerate((Status.RUNNING, Status.STOPPED, Status.SLEEPING)):
            make_workspace(account, host=host, status=status, ip=f"10.200.1.{offset + 1}")


def place(wanted: Amount = SMALL) -> Host:
    with transaction.atomic():
        return placement.place_on_host(wanted)


def queries_of(call: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as queries:
        call()
    return sum("SAVEPOINT" not in query["sql"] for query in queries)


def test_placement_takes_two_queries_for_1_10_and_200_hosts(stranger: Caller) -> None:
    counts = []
    for number in (1, 10, 200):
        add_hosts(number, stranger.account)
        counts.append(queries_of(place))
    # All hosts; the lock of the chosen one.
    assert counts == [2, 2, 2]


def test_creating_a_workspace_takes_as_many_queries_for_1_10_and_200_hosts(api: Caller, stranger: Caller) -> None:
    def create() -> None:
        assert api.post("/workspace", {}).status_code == 202

    counts = []
    with no_free_waiting_place():
        add_hosts(1, stranger.account)
        create()  # what the first request of a process reads once is not counted
        for number in (1, 10, 200):
            add_hosts(number, stranger.account)
            counts.append(queries_of(create))
    assert counts[0] == counts[1] == counts[2]


def test_the_host_with_the_most_uncommitted_memory_is_chosen(api: Caller) -> None:
    for name, memory in (("large", 4096), ("larger", 6144), ("largest", 8192)):
        make_host(name)
        Host.objects.filter(name=name).update(memory_mb=memory)
    largest = Host.objects.get(name="largest")
    make_workspace(api.account, host=largest, ip="10.200.1.1", memory_mb=3072)
    make_workspace(api.account, host=largest, ip="10.200.1.2", memory_mb=2048, status=Status.STOPPED)
    assert place().name == "larger"
    Workspace.objects.filter(ip="10.200.1.1").update(status=Status.SLEEPING)
    assert place().name == "largest"


def test_a_host_whose_memory_is_promised_is_refused_with_what_is_left(api: Caller) -> None:
    host = make_host()
    Host.objects.update(memory_mb=1024)
    make_workspace(api.account, host=host, ip="10.200.1.1", memory_mb=700)
    with pytest.raises(VMUnavailable) as refused:
        place()
    missing = [{"what": "memory_mb", "wanted": 512, "best": 324}]
    assert refused.value.details == {"resource": "memory_mb", "current": 324, "requested": 512, "missing": missing}


def test_only_the_disks_of_hosts_with_enough_memory_count() -> None:
    make_host("small")
    make_host("full")
    Host.objects.filter(name="small").update(memory_mb=256)
    Host.objects.filter(name="full").update(disk_free_mb=100)
    with pytest.raises(VMUnavailable) as refused:
        place()
    missing = [{"what": "disk_size_mb", "wanted": 1024, "best": 100}]
    assert refused.value.details == {"resource": "disk_size_mb", "current": 100, "requested": 1024, "missing": missing}


@pytest.mark.parametrize(
    "change",
    [{"state": "draining"}, {"state": "maintenance"}, {"state": "gone"}, {"problem": "No hypervisor."},
     {"lease_until": None}],
)  # fmt: skip
def test_a_host_that_takes_no_new_machines_is_not_chosen(change: dict[str, Any]) -> None:
    make_host("closed")
    Host.objects.update(**change)
    with pytest.raises(VMUnavailable, match="No host is available"):
        place()
    make_host("open")
    assert place().name == "open"


def test_of_equally_free_hosts_the_first_by_name_is_chosen() -> None:
    for name in ("host-c", "host-a", "host-b"):
        make_host(name)
    assert place().name == "host-a"


def _after_the_choice(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """What another transaction commits after the hosts were read and before one is locked."""
    read, changes = placement.find_candidates, [change]

    def candidates(*wanted: Any) -> list[str]:
        found = read(*wanted)
        if changes:
            changes.pop()()
        return found

    monkeypatch.setattr(placement, "find_candidates", candidates)


def test_a_host_that_is_drained_while_it_is_chosen_takes_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    make_host("first")
    make_host("second")
    _after_the_choice(monkeypatch, lambda: Host.objects.filter(name="first").update(state="draining"))
    assert place().name == "second"


def test_the_last_host_that_is_drained_while_it_is_chosen_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    make_host("only")
    _after_the_choice(monkeypatch, lambda: Host.objects.update(state="draining"))
    with pytest.raises(VMUnavailable, match="No host is available"):
        place()


def test_a_host_that_is_removed_while_it_is_chosen_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    make_host("only")
    _after_the_choice(monkeypatch, lambda: host_delete(host_id=Host.objects.get(name="only").pk))
    with pytest.raises(VMUnavailable, match="No host is available"):
        place()
