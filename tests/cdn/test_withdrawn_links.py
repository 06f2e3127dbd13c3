"""Links of a deactivated account's files: some in the request that deactivates it, the rest by the worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

from accounts.services import account_switch
from cdn.delivery.addresses import address_of, file_path
from cdn.delivery.links import links_list
from cdn.media import notifications, withdrawal
from cdn.models import File
from cdn.services import deliveries
from cdn.services.storage_check import orphans_remove
from cdn.tasks import withdraw_links
from tests.callers import Caller
from tests.cdn.edge_files import files_clear, stored_file

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A call removes the links of two files."""
    monkeypatch.setattr(withdrawal, "BATCH", 2)
    monkeypatch.setattr(withdrawal, "SECONDS_IN_REQUEST", 0.0)
    files_clear()
    yield
    files_clear()


@pytest.fixture
def worker() -> Iterator[MagicMock]:
    """What is sent to the worker, which does nothing by itself."""
    with patch.object(notifications.current_app, "send_task") as send:
        yield send


def delivered_files(account: Any, number: int) -> list[str]:
    files = [stored_file(account, f"file {each}".encode(), "text/plain") for each in range(number)]
    for file in files:
        address = address_of(f"/{file_path(file)}")
        assert address is not None
        assert deliveries.file_deliver(address)
    return sorted(file.pk for file in files)


def arguments(worker: MagicMock) -> list[Any]:
    """Of the only task that was sent."""
    ((name,), sent) = worker.call_args
    assert (worker.call_count, name, sent["queue"]) == (1, withdraw_links.name, "media")
    worker.reset_mock()
    return list(sent["args"])


def test_a_request_removes_some_and_the_worker_the_rest(api: Caller, stranger: Caller, worker: MagicMock) -> None:
    files, others = delivered_files(api.account, 5), delivered_files(stranger.account, 1)
    account_switch(api.account, is_active=False)
    assert list(links_list()) == sorted([*files[2:], *others])
    withdraw_links(*arguments(worker))
    assert list(links_list()) == others
    worker.assert_not_called()


def test_the_worker_goes_on_in_another_task(api: Caller, worker: MagicMock, monkeypatch: pytest.MonkeyPatch) -> None:
    files = delivered_files(api.account, 6)
    account_switch(api.account, is_active=False)
    first = arguments(worker)
    withdraw = withdrawal.account_links_withdraw
    monkeypatch.setattr(withdrawal, "account_links_withdraw", lambda *args, **more: withdraw(*args, **more, seconds=0))
    withdraw_links(*first)
    assert list(links_list()) == files[4:]
    withdraw_links(*first)  # it is sent twice: nothing is lost
    worker.reset_mock()
    withdraw_links(api.account.pk, files[3])
    assert list(links_list()) == []


def test_an_account_that_is_active_again_keeps_its_links(api: Caller, worker: MagicMock) -> None:
    files = delivered_files(api.account, 4)
    account_switch(api.account, is_active=False)
    sent = arguments(worker)
    account_switch(api.account, is_active=True)
    withdraw_links(*sent)
    assert list(links_list()) == files[2:]


def test_a_few_files_need_no_worker(api: Caller, worker: MagicMock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(withdrawal, "SECONDS_IN_REQUEST", 60.0)
    delivered_files(api.account, 5)
    account_switch(api.account, is_active=False)
    assert list(links_list()) == []
    worker.assert_not_called()


def test_without_a_broker_the_rest_is_removed_with_the_orphans(api: Caller, worker: MagicMock) -> None:
    worker.side_effect = OSError("no broker")
    files = delivered_files(api.account, 4)
    account_switch(api.account, is_active=False)
    assert list(links_list()) == files[2:]
    assert File.objects.filter(account=api.account).count() == 4
    orphans_remove()
    assert list(links_list()) == []
