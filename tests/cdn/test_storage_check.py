"""Bytes in the store beside the rows: what `manage.py cdn_check` removes, reports and leaves alone."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

import pytest
from django.conf import settings
from django.utils import timezone

from cdn import storage
from cdn.models import File
from cdn.services.check_run import cdn_check
from cdn.services.files import file_trash
from cdn.services.storage_check import storage_check
from tests.callers import Caller
from tests.cdn.received import processed_file
from tests.cdn.rows import make_permit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of other tests is in the store."""
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"cdn_orphan_grace_seconds": 0}))
    storage_check()


@pytest.fixture
def file(api: Caller) -> File:
    """A published one."""
    made = processed_file(api.account, b"words")
    File.objects.filter(pk=made.pk).update(published_at=timezone.now() - timedelta(seconds=1))
    return made


def another_key(file: File) -> str:
    """Of other bytes in the file's folder of the store, as of an attempt that died."""
    data = b"other bytes"
    key = storage.original_key(file.pk, sha256(data).hexdigest())
    source = storage.part_path(file.pk)
    source.write_bytes(data)
    storage.store_file().save(source, key)
    source.unlink()
    return key


def stored() -> set[str]:
    return {found.key for found in storage.store_file().list_files()}


@pytest.mark.usefixtures("no_grace")
def test_the_check_says_what_is_stored_reserved_and_given_back(api: Caller, file: File) -> None:
    trashed, refused = processed_file(api.account, b"trash"), make_permit(api.account, size=70).file
    make_permit(api.account, size=40)
    for each in (trashed, refused):
        file_trash(file=each, actor="test")
    said: list[str] = []
    assert cdn_check(said.append) == 0
    assert "stored 5, in the trash 5, reserved 40 bytes" in said
    assert "given back 70 bytes of 1 files that were refused and are still shown" in said


@pytest.mark.usefixtures("no_grace")
def test_bytes_of_a_dead_attempt_beside_a_published_file_are_removed(file: File) -> None:
    other, own = another_key(file), storage.original_key(file.pk, file.sha256)
    assert stored() == {own, other}
    assert storage_check() == ([], 1)
    assert stored() == {own}
    assert storage_check() == ([], 0)


def test_they_stay_as_long_as_they_are_young(file: File) -> None:
    other = another_key(file)
    assert storage_check() == ([], 0)
    assert other in stored()


@pytest.mark.usefixtures("no_grace")
def test_nothing_is_removed_of_a_file_whose_own_bytes_are_missing(file: File) -> None:
    other, own = another_key(file), storage.original_key(file.pk, file.sha256)
    storage.store_file().remove(own)
    assert storage_check() == ([f"{own} is not stored"], 0)
    assert stored() == {other}


@pytest.mark.usefixtures("no_grace")
def test_a_work_folder_without_a_row_is_removed() -> None:
    (storage.work_folder("file_aaaaaaaaaaaaaaaa") / "0").write_bytes(b"left")
    assert storage_check() == ([], 1)
    assert not list(storage.list_work())
