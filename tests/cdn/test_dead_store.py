"""A remote store that does not answer: what removes files asks it in the worker `media` only, and gives up soon."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db.models import Q
from django.utils import timezone

from cdn import hooks, storage
from cdn.media import removal
from cdn.models import File, Permit
from cdn.services import files, processing, storage_check, sweeps
from cdn.storage.errors import StorageUnavailable
from tests.callers import Caller
from tests.cdn.rows import make_file, make_permit, upload

pytestmark = pytest.mark.django_db(transaction=True)


class Dead:
    def __init__(self) -> None:
        self.calls = 0

    def fail(self, *_: object) -> None:
        self.calls += 1
        raise StorageUnavailable("The store of files does not answer; try again later.")

    remove_all = list_files = abort_unfinished = fail


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Dead:
    """In place of a bucket."""
    made = Dead()
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"cdn_s3_bucket": "bucket"}))
    for module in (removal, storage_check, storage.removal):
        monkeypatch.setattr(module, "store_file", lambda: made)
    return made


@pytest.fixture
def withdrawn() -> Iterator[list[list[str]]]:
    """What the worker is asked to remove."""
    asked: list[list[str]] = []
    with patch.object(hooks.bytes_withdrawn, "_handlers", [asked.append]):
        yield asked


def trashed(api: Caller, count: int) -> list[str]:
    made = [make_file(api.account, size=1) for _ in range(count)]
    for file in made:
        files.file_trash(file=file, actor="test")
    return sorted(file.pk for file in made)


def test_a_purge_asks_the_worker_and_not_the_store(api: Caller, store: Dead, withdrawn: list[list[str]]) -> None:
    purged = trashed(api, 5)
    assert files.trash_purge(account=api.account, within=Q(), actor="test") == (5, True)
    assert (withdrawn, store.calls) == ([purged], 0)
    assert not File.objects.exists()


def test_uploads_that_end_without_a_file_never_ask_the_store(
    api: Caller, store: Dead, withdrawn: list[list[str]]
) -> None:
    for _ in range(3):
        make_permit(api.account, size=1)
    Permit.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert sweeps.permits_expire() == 3
    assert (withdrawn, store.calls) == ([], 0)


def test_a_file_that_was_processed_may_be_in_the_store(api: Caller, store: Dead, withdrawn: list[list[str]]) -> None:
    file = upload(make_permit(api.account, size=1))
    File.objects.update(deadline_at=timezone.now() - timedelta(seconds=1))
    assert processing.processing_expire() == 1
    assert (withdrawn, store.calls) == ([[file.pk]], 0)


def test_the_worker_asks_a_dead_store_once_for_many_files(store: Dead) -> None:
    assert removal.stored_remove([f"file_{number:016}" for number in range(300)]) == 0
    assert store.calls == 1


def test_what_a_task_has_no_time_for_is_left_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "SECONDS", 0.0)
    with patch.object(removal, "request_removal") as asked:
        assert removal.stored_remove(["file_aaaaaaaaaaaaaaaa"]) == 0
    asked.assert_called_once_with(["file_aaaaaaaaaaaaaaaa"])


def test_bytes_of_a_file_that_is_kept_are_never_removed(api: Caller) -> None:
    file = make_file(api.account)
    with patch.object(removal, "store_file") as store:
        assert removal.stored_remove([file.pk, "file_aaaaaaaaaaaaaaaa"]) == 2
    store.return_value.remove_all.assert_called_once_with("file_aaaaaaaaaaaaaaaa")


def test_the_check_says_that_the_store_does_not_answer(store: Dead) -> None:
    with pytest.raises(CommandError, match="does not answer"):
        call_command("cdn_check")
    assert store.calls == 1
