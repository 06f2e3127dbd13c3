"""Operations that wait hold no connection of vmhost's pool. PostgreSQL alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import run_at_once, wait_until
from workspaces.host.operation_shares import OperationShares
from workspaces.models import Workspace

pytestmark = [
    pytest.mark.django_db(transaction=True),
]
WAITING = 7  # of the eight threads that carry out operations
# One for each of those, and this test's own.
CONNECTIONS = WAITING + 1
SLOW = "registry.test/slow:1"


@pytest.fixture
def small_pool(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Before `vmhost`, whose threads take connections of it."""
    monkeypatch.setitem(connection.settings_dict["OPTIONS"]["pool"], "max_size", CONNECTIONS)
    connection.close()
    connection.close_pool()
    yield
    connection.close()
    connection.close_pool()


class Held:
    """Calls that wait until `released` is set."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.waiting: set[int] = set()

    def wait(self, poll: Any = None) -> None:
        self.waiting.add(threading.get_ident())
        while not self.released.wait(0.05):
            if poll is not None:
                poll()


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.released.set()


def create(api: Caller, **fields: Any) -> str:
    answer = api.post("/workspace", {"name": "one", "wait_ready": False, **fields})
    assert answer.status_code == 202, answer.json()
    return str(answer.json()["workspace"]["id"])


def status(key: str) -> str:
    return str(Workspace.objects.get(pk=key).status)


def assert_others_go_on(stranger: Caller, vmhost: FakeHost, held: Held, waiting: list[str]) -> None:
    wait_until(lambda: len(held.waiting) == WAITING, 30)
    time.sleep(0.2)  # by now each of them has polled
    assert run_at_once(2, lambda _: vmhost.runtime.send_heartbeat()) == ["done"] * 2
    other = create(stranger)
    wait_until(lambda: status(other) == "running", 30)
    held.released.set()
    wait_until(lambda: {status(key) for key in waiting} == {"running"}, 60)


def test_guests_that_boot_slowly_keep_nobody_from_the_database(
    small_pool: None, api: Caller, stranger: Caller, vmhost: FakeHost, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    vmhost.runtime.shares = OperationShares(threads=2 * WAITING)
    wait_ready = vmhost.driver.wait_ready

    def wait_longer(machine_id: str, timeout: float) -> None:
        if len(held.waiting) < WAITING:
            held.wait()
        wait_ready(machine_id, timeout)

    monkeypatch.setattr(vmhost.driver, "wait_ready", wait_longer)
    slow = [create(api, name=f"slow-{number}") for number in range(WAITING)]
    assert_others_go_on(stranger, vmhost, held, slow)


def test_a_registry_that_answers_slowly_keeps_nobody_from_the_database(
    small_pool: None, api: Caller, stranger: Caller, vmhost: FakeHost, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pull asks again and again whether it is cancelled, and reports its progress."""
    vmhost.runtime.shares = OperationShares(threads=2 * WAITING)
    ensure = vmhost.images.ensure

    def ensure_slowly(reference: str, **options: Any) -> Any:
        def poll() -> None:
            options["progress"](1, "Downloading the image.")
            assert not options["cancelled"]()

        if reference.startswith("registry.test/slow"):
            held.wait(poll)
        return ensure(reference, **options)

    monkeypatch.setattr(vmhost.images, "ensure", ensure_slowly)
    slow = [create(api, name=f"slow-{number}", image=SLOW) for number in range(WAITING)]
    assert_others_go_on(stranger, vmhost, held, slow)
