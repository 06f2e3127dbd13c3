"""One account's operations leave threads of the host to those of others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import wait_until
from workspaces.host.operation_shares import OperationShares
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationState
from workspaces.tasks import reconcile_host

pytestmark = pytest.mark.django_db(transaction=True)
SLOW = "registry.test/slow:1"


@pytest.fixture
def slow_registry(vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Images of that name arrive when the event is set."""
    released, ensure = threading.Event(), vmhost.images.ensure

    def ensure_slowly(reference: str, **options: Any) -> Any:
        if reference.startswith("registry.test/slow"):
            released.wait(30)
        return ensure(reference, **options)

    monkeypatch.setattr(vmhost.images, "ensure", ensure_slowly)
    yield released
    released.set()


def create(api: Caller, **fields: Any) -> str:
    answer = api.post("/workspace", {"name": "one", "wait_ready": False, **fields})
    assert answer.status_code == 202, answer.json()
    return str(answer.json()["workspace"]["id"])


def count_running() -> int:
    return Operation.objects.filter(state=OperationState.RUNNING).count()


def test_an_account_whose_images_come_slowly_delays_nobody_else(
    api: Caller, stranger: Caller, vmhost: FakeHost, slow_registry: threading.Event
) -> None:
    vmhost.runtime.shares = OperationShares(threads=8)  # as many as the host of the tests has
    slow = [create(api, name=f"slow-{number}", image=SLOW) for number in range(10)]
    wait_until(lambda: count_running() == 4)
    quick = create(stranger)
    wait_until(lambda: Workspace.objects.get(pk=quick).status == "running")
    assert count_running() == 4
    slow_registry.set()
    wait_until(lambda: set(Workspace.objects.filter(pk__in=slow).values_list("status", flat=True)) == {"running"})


def test_two_accounts_whose_images_come_slowly_leave_threads_to_a_third_one_and_to_the_host(
    api: Caller,
    stranger: Caller,
    new_account: Callable[..., Caller],
    vmhost: FakeHost,
    slow_registry: threading.Event,
) -> None:
    vmhost.runtime.shares = OperationShares(threads=8)
    slow = [create(each, name=f"slow-{number}", image=SLOW) for each in (api, stranger) for number in range(8)]
    wait_until(lambda: count_running() == 6)  # four, and half of what was left
    quick = create(new_account("third"))
    wait_until(lambda: Workspace.objects.get(pk=quick).status == "running")
    assert vmhost.pool.submit(reconcile_host).result(timeout=10) == 0
    slow_registry.set()
    wait_until(lambda: set(Workspace.objects.filter(pk__in=slow).values_list("status", flat=True)) == {"running"})


def test_what_was_deferred_follows_without_waiting_for_the_heartbeat(
    api: Caller, vmhost: FakeHost, slow_registry: threading.Event
) -> None:
    vmhost.runtime.shares = OperationShares(threads=2)
    slow_registry.set()
    made = [create(api, name=f"slow-{number}", image=SLOW) for number in range(5)]
    vmhost.settle()
    assert set(Workspace.objects.filter(pk__in=made).values_list("status", flat=True)) == {"running"}


def test_a_thread_that_is_free_is_that_of_the_account_with_the_fewest() -> None:
    shares = OperationShares(threads=4)
    assert [shares.begin_operation("a", f"a{number}") for number in range(3)] == [True, True, False]
    assert [shares.begin_operation("b", f"b{number}") for number in range(2)] == [True, False]
    assert [shares.begin_operation(name, name) for name in "cd"] == [True, False]
    assert shares.end_operation("a") == "d"
    assert shares.begin_operation("d", "d")
    assert shares.end_operation("c") is None  # one is left, and who waits has as many
    assert shares.begin_operation("c", "c2")


def test_what_has_begun_by_itself_is_not_notified_again() -> None:
    shares = OperationShares(threads=2)
    assert [shares.begin_operation("a", f"a{number}") for number in range(3)] == [True, False, False]
    assert shares.end_operation("a") == "a1"
    assert shares.begin_operation("a", "a2")
    assert shares.end_operation("a") is None
