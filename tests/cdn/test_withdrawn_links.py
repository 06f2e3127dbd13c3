"""Links of a deactivated account's files: some in the request that deactivates it, the rest by the worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_switch
from cdn.delivery.addresses import address_of, file_path, variant_path
from cdn.delivery.links import list_links, remove_links
from cdn.media import withdrawal
from cdn.models import File, Withdrawal
from cdn.services import deliveries
from cdn.services.storage_check import orphans_remove
from cdn.tasks import continue_withdrawals, withdraw_links
from common.work import wakeups
from tests.callers import Caller
from tests.cdn.edge_files import files_clear, stored_file, stored_variant

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
    with patch.object(wakeups.current_app, "send_task") as send:
        yield send


def deliver(path: str) -> None:
    address = address_of(path)
    assert address is not None
    assert deliveries.file_deliver(address)


def delivered_files(account: Any, number: int) -> list[str]:
    files = [stored_file(account, f"file {each}".encode(), "text/plain") for each in range(number)]
    for file in files:
        deliver(f"/{file_path(file)}")
    return sorted(file.pk for file in files)


def continued(account_id: str) -> int:
    """What beat sends to the worker once the time of the withdrawal is over."""
    Withdrawal.objects.filter(account_id=account_id).update(due_at=timezone.now())
    return int(continue_withdrawals())


def arguments(worker: MagicMock) -> list[Any]:
    """Of the only task that was sent."""
    ((name,), sent) = worker.call_args
    assert (worker.call_count, name, sent["queue"]) == (1, withdraw_links.name, "media")
    worker.reset_mock()
    return list(sent["args"])


def test_a_request_removes_some_and_the_worker_the_rest(api: Caller, stranger: Caller, worker: MagicMock) -> None:
    files, others = delivered_files(api.account, 5), delivered_files(stranger.account, 1)
    account_switch(api.account, is_active=False)
    assert list(list_links()) == sorted([*files[2:], *others])
    withdraw_links(*arguments(worker))
    assert list(list_links()) == others
    worker.assert_not_called()


def test_the_worker_goes_on_in_another_task(api: Caller, worker: MagicMock, monkeypatch: pytest.MonkeyPatch) -> None:
    files = delivered_files(api.account, 6)
    account_switch(api.account, is_active=False)
    first = arguments(worker)
    withdraw = withdrawal.withdraw_account_links
    monkeypatch.setattr(withdrawal, "withdraw_account_links", lambda *args, **more: withdraw(*args, **more, seconds=0))
    withdraw_links(*first)
    assert list(list_links()) == files[4:]
    assert arguments(worker) == first
    withdraw_links(*first)
    withdraw_links(*first)  # it is sent twice: nothing is lost
    assert list(list_links()) == []
    assert not Withdrawal.objects.exists()


def test_where_the_process_dies_the_worker_removes_the_rest(api: Caller, stranger: Caller, worker: MagicMock) -> None:
    """Right after the commit; then in the middle of the worker's own call."""
    files, others = delivered_files(api.account, 5), delivered_files(stranger.account, 1)
    with patch.object(withdrawal, "withdraw_account_links", side_effect=RuntimeError("killed")):
        account_switch(api.account, is_active=False)
    assert list(list_links()) == sorted([*files, *others])
    assert continue_withdrawals() == 0  # the process may be at it
    assert continued(api.account.pk) == 1
    first = arguments(worker)
    killed = patch.object(withdrawal, "remove_links", side_effect=[None, None, KeyboardInterrupt])
    with killed, pytest.raises(KeyboardInterrupt):
        withdraw_links(*first)
    assert continued(api.account.pk) == 1
    withdraw_links(*arguments(worker))
    assert list(list_links()) == sorted([*files[:2], *others])  # these were removed, the stand-in says
    assert continue_withdrawals() == 0


def test_a_second_deactivation_begins_with_the_first_file(api: Caller, worker: MagicMock) -> None:
    """Also for a worker that is still at the first one."""
    files = delivered_files(api.account, 4)
    account_switch(api.account, is_active=False)
    sent = arguments(worker)

    def remove(file_id: str) -> None:
        patched.stop()
        account_switch(api.account, is_active=True)
        for each in files:
            deliver(f"/{file_path(File.objects.get(pk=each))}")
        with patch.object(withdrawal, "withdraw_account_links"):
            account_switch(api.account, is_active=False)

    patched = patch.object(withdrawal, "remove_links", remove)
    patched.start()
    withdraw_links(*sent)
    assert list(list_links()) == []
    assert not Withdrawal.objects.exists()


def test_an_account_that_is_active_again_keeps_its_links(api: Caller, worker: MagicMock) -> None:
    files = delivered_files(api.account, 4)
    account_switch(api.account, is_active=False)
    sent = arguments(worker)
    account_switch(api.account, is_active=True)
    withdraw_links(*sent)
    assert list(list_links()) == files[2:]
    assert not Withdrawal.objects.exists()


def test_a_few_files_need_no_worker(api: Caller, worker: MagicMock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(withdrawal, "SECONDS_IN_REQUEST", 60.0)
    delivered_files(api.account, 5)
    account_switch(api.account, is_active=False)
    assert list(list_links()) == []
    worker.assert_not_called()


def test_without_a_broker_the_rest_is_removed_once_there_is_one(api: Caller, worker: MagicMock) -> None:
    worker.side_effect = OSError("no broker")
    files = delivered_files(api.account, 4)
    account_switch(api.account, is_active=False)
    assert list(list_links()) == files[2:]
    worker.reset_mock(side_effect=True)
    assert continued(api.account.pk) == 1
    withdraw_links(*arguments(worker))
    assert list(list_links()) == []


def write_elsewhere(account_id: str) -> None:
    """By another connection, which waits for a lock for a second."""
    try:
        with transaction.atomic():
            connection.cursor().execute("SET LOCAL lock_timeout = '1s'")
            assert Account.objects.filter(pk=account_id).update(name="written")
    finally:
        connection.close()


@pytest.fixture
def other_writer(monkeypatch: pytest.MonkeyPatch, api: Caller) -> Iterator[list[str]]:
    """It writes the row of the account whenever links are removed. Yields the ids of the files with these links."""
    removed: list[str] = []

    def remove(file_id: str) -> None:
        pool.submit(write_elsewhere, api.account.pk).result(120)
        remove_links(file_id)
        removed.append(file_id)

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(withdrawal, "remove_links", remove)
        yield removed


def test_others_write_while_links_are_removed(api: Caller, worker: MagicMock, other_writer: list[str]) -> None:
    files = delivered_files(api.account, 6)
    account_switch(api.account, is_active=False)
    assert other_writer == files[:2]
    withdraw_links(*arguments(worker))
    assert other_writer == files


def test_where_the_database_fails_the_rest_is_left_to_the_worker(api: Caller, worker: MagicMock) -> None:
    files = delivered_files(api.account, 5)
    reads = 0

    def fail(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal reads
        if sql.startswith("SELECT") and "cdn_file" in sql:
            reads += 1
            raise OperationalError("the connection is lost")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(fail):
        account_switch(api.account, is_active=False)
    assert reads == 1
    assert list(list_links()) == files
    worker.assert_not_called()
    with connection.execute_wrapper(fail), pytest.raises(OperationalError):
        withdraw_links(api.account.pk)
    assert continued(api.account.pk) == 1
    withdraw_links(*arguments(worker))
    assert list(list_links()) == []


def test_links_that_cannot_be_removed_keep_no_others(
    api: Caller, worker: MagicMock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = delivered_files(api.account, 5)

    def remove(file_id: str) -> None:
        if file_id == files[1]:
            raise PermissionError(f"no access to {file_id}")
        remove_links(file_id)

    monkeypatch.setattr(withdrawal, "remove_links", remove)
    account_switch(api.account, is_active=False)
    withdraw_links(*arguments(worker))
    assert list(list_links()) == [files[1]]
    assert f"no access to {files[1]}" in caplog.text
    orphans_remove()
    assert list(list_links()) == []


def test_an_account_that_becomes_active_at_that_moment_has_links_again(
    api: Caller, worker: MagicMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has read that it is inactive; then it is activated, and a file is delivered."""
    (file_id,) = delivered_files(api.account, 1)
    path = f"/{file_path(File.objects.get(pk=file_id))}"

    def remove(file_id: str) -> None:
        account_switch(api.account, is_active=True)
        deliver(path)
        remove_links(file_id)

    with monkeypatch.context() as patched:
        patched.setattr(withdrawal, "remove_links", remove)
        account_switch(api.account, is_active=False)
    assert list(list_links()) == []
    deliver(path)
    assert list(list_links()) == [file_id]


def test_a_link_is_made_where_its_folder_is_removed_meanwhile(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    (file_id,) = delivered_files(api.account, 1)
    path = f"/{file_path(File.objects.get(pk=file_id))}"
    replace = Path.replace

    def removed_before(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        remove_links(file_id)
        return self.replace(target)

    monkeypatch.setattr(Path, "replace", removed_before)
    deliver(path)
    assert list(list_links()) == [file_id]


def test_two_may_remove_the_same_links_at_once(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each returns when all are gone, whatever the other has removed."""
    file = stored_file(api.account, b"picture", "image/png")
    for name in ("small", "large"):
        deliver(f"/{variant_path(stored_variant(file, name, name.encode()))}")
    unlink, seen = os.unlink, []

    def twice(path: Any, **more: Any) -> None:
        unlink(path, **more)
        seen.append(path)
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", twice)
    remove_links(file.pk)
    assert len(seen) == 2
    assert list(list_links()) == []
