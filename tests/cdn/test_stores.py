"""The store of files: a local disk, and a bucket of a service that speaks S3; the same tests for both."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

import pytest
from django.conf import settings

from cdn.storage import original_key, part_path, remove_bytes, remove_work, store_file, variant_key, work_folder
from cdn.storage.errors import StorageUnavailable
from cdn.storage.interface import Store
from cdn.storage.local import LocalStore
from cdn.storage.parts import PartBusy, PartFile, list_parts, remove_part
from cdn.storage.s3 import PIECE, s3_store
from common.ids import new_id
from config.env import Env
from tests.cdn.edge_files import files_clear
from tests.cdn.s3_server import BUCKET, Bucket, s3_server, s3_settings
from tests.killed_process import killed_process
from tests.small_disk import small_disk

ONE, TWO = "file_2222222222222222", "file_3333333333333333"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_server() as made:
        yield made


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    files_clear()
    yield
    files_clear()


@pytest.fixture
def in_bucket(bucket: Bucket) -> Iterator[Store]:
    bucket.clear()
    env = Env.from_environment(settings.ENV.variables() | s3_settings(bucket))
    s3_store.cache_clear()
    with patch.object(settings, "ENV", env):
        yield store_file()
    s3_store.cache_clear()


@pytest.fixture(params=["local", "s3"])
def any_store(request: pytest.FixtureRequest) -> Store:
    return request.getfixturevalue("in_bucket") if request.param == "s3" else store_file()


def saved(found: Store, file_id: str, data: bytes, index: int | None = None) -> str:
    digest = sha256(data).hexdigest()
    key = original_key(file_id, digest) if index is None else variant_key(file_id, index, digest)
    path = work_folder(file_id) / "made"
    path.write_bytes(data)
    found.save(path, key)
    assert path.read_bytes() == data
    remove_work(file_id)
    return key


def read(found: Store, key: str) -> bytes:
    with found.open_local(key) as file:
        return file.read()


@pytest.mark.parametrize("size", [0, 1, 100_000, PIECE, PIECE + 1, 2 * PIECE + 5])
def test_what_is_stored_is_read_again(any_store: Store, size: int) -> None:
    data = os.urandom(size)
    assert read(any_store, saved(any_store, ONE, data)) == data


def test_storing_twice_and_removing_twice_are_once(any_store: Store) -> None:
    key = saved(any_store, ONE, b"one")
    assert saved(any_store, ONE, b"one") == key
    assert len(list(any_store.list_files())) == 1
    for _ in range(2):
        any_store.remove_all(ONE)
    with pytest.raises(FileNotFoundError):
        any_store.open_local(key)


def test_all_files_are_listed_and_one_is_removed_with_its_variants(any_store: Store) -> None:
    keys = [saved(any_store, ONE, b"1" * 9), *(saved(any_store, ONE, b"v" * number, number) for number in range(4))]
    other = saved(any_store, TWO, b"2" * 5)
    found = {row.key: row for row in any_store.list_files()}
    assert set(found) == {*keys, other}
    assert {row.file_id for row in found.values()} == {ONE, TWO}
    assert (found[keys[0]].size, found[other].size) == (9, 5)
    assert all(0 <= row.age < 60 for row in found.values())
    any_store.remove_all(ONE)
    assert [row.key for row in any_store.list_files()] == [other]


@pytest.mark.parametrize(
    "key", ["", "x", "../x", f"files/{ONE}/../{TWO}", f"files/{ONE}/a", f"files/{ONE}/v/1-x", "/etc"]
)
def test_what_is_no_key_is_refused(any_store: Store, key: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    for use in (lambda: any_store.save(tmp_path / "f", key), lambda: any_store.open_local(key)):
        with pytest.raises(ValueError, match="not a key"):
            use()


@pytest.mark.parametrize("file_id", ["", "..", "a/b", "file_" + "0" * 16, "FILE_2222222222222222", "file_2\n"])
def test_what_is_no_id_reaches_no_path(any_store: Store, file_id: str) -> None:
    for use in (part_path, work_folder, any_store.remove_all, remove_bytes):
        with pytest.raises(ValueError, match="not an id"):
            use(file_id)


def test_all_bytes_of_a_file_are_removed(any_store: Store) -> None:
    key = saved(any_store, ONE, b"one")
    part_path(ONE).write_bytes(b"part")
    (work_folder(ONE) / "x").write_bytes(b"x")
    for _ in range(2):
        remove_bytes(ONE)
    assert not part_path(ONE).exists()
    assert not list((settings.STATE / "cdn/work").iterdir())
    with pytest.raises(FileNotFoundError):
        any_store.open_local(key)


def test_modes_let_no_other_user_read() -> None:
    saved(store_file(), ONE, b"one")
    with_part = PartFile.open(TWO)
    with_part.close()
    for path in [settings.STATE / "cdn/store", *(settings.STATE / "cdn").rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


def test_a_link_in_place_of_a_part_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"of another")
    part_path(ONE).symlink_to(target)
    with pytest.raises(StorageUnavailable):
        PartFile.open(ONE)
    with pytest.raises(StorageUnavailable):
        store_file().save(part_path(ONE), original_key(ONE, "0" * 64))
    assert target.read_bytes() == b"of another"


def test_one_writer_at_a_time_has_a_part() -> None:
    first = PartFile.open(ONE)
    with pytest.raises(PartBusy):
        PartFile.open(ONE)
    first.write(b"one")
    first.close()
    second = PartFile.open(ONE)
    assert second.size == 3
    second.cut(1)
    second.write(b"xy")
    assert second.sha256() == sha256(b"oxy").hexdigest()
    second.close()


def test_a_part_that_was_removed_is_begun_again() -> None:
    first = PartFile.open(ONE)
    first.write(b"one")
    remove_part(ONE)
    second = PartFile.open(ONE)
    assert second.size == 0
    first.close()
    second.close()


def test_parts_are_listed_by_their_ids() -> None:
    for file_id, data in ((ONE, b"one"), (TWO, b"")):
        part = PartFile.open(file_id)
        part.write(data)
        part.close()
    (part_path(ONE).parent / "else").write_bytes(b"x")
    assert {(found.file_id, found.size) for found in list_parts()} == {(ONE, 3), (TWO, 0)}


def test_a_full_disk_is_an_error_of_the_api_and_keeps_what_was_written(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("mounts a file system")
    with small_disk(tmp_path, 2), patch.object(settings, "STATE", tmp_path):
        part = PartFile.open(ONE)
        part.write(bytes(5 << 18))
        with pytest.raises(StorageUnavailable) as raised:
            part.write(bytes(1 << 20))
        assert (raised.value.code, raised.value.status) == ("VM_UNAVAILABLE", 503)
        assert part.size == part_path(ONE).stat().st_size > 1 << 20
        part.close()


def test_the_hosts_reserve_is_not_used(tmp_path: Path) -> None:
    with patch.object(settings, "ENV", Env.from_environment({"PLATFORM_DISK_RESERVE_MB": str(1 << 30)})):
        part = PartFile.open(ONE)
        with pytest.raises(StorageUnavailable):
            part.cut(0)
        part.close()


def test_a_process_that_is_killed_while_it_stores_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    data, root = os.urandom(1000), tmp_path / "store"
    root.mkdir()
    path, key = tmp_path / "made", original_key(ONE, sha256(data).hexdigest())
    path.write_bytes(data)
    killed = 0
    for step in range(1, 9):
        with killed_process() as process:
            was_killed = process.kills_itself(
                "tests.cdn.killed_store.store_until_death", ROOT=str(root), MADE=str(path), KEY=key, STEP=step
            )
        found = LocalStore(root)
        assert all(row.key == key and read(found, key) == data for row in found.list_files())
        if not was_killed:
            break
        killed += 1
    assert killed >= 3
    assert read(found, key) == data
    assert found.abort_unfinished(60) == 0
    assert found.abort_unfinished(0) == 1
    assert [path.name for path in root.rglob("*") if path.is_file()] == [key.rpartition("/")[2]]


def test_large_objects_are_sent_in_pieces_of_8_mib(in_bucket: Store, bucket: Bucket) -> None:
    saved(in_bucket, ONE, bytes(3 * PIECE + 7))
    assert (bucket.requests["begin"], bucket.requests["piece"], bucket.requests["complete"]) == (1, 4, 1)
    assert bucket.largest_body == PIECE
    assert not bucket.uploads
    assert set(bucket.types.values()) == {"application/octet-stream"}


def test_a_store_that_is_overloaded_is_asked_again(in_bucket: Store, bucket: Bucket) -> None:
    bucket.fail.update({"put": 2, "get": 1, "list": 1})
    key = saved(in_bucket, ONE, b"one")
    assert read(in_bucket, key) == b"one"
    assert len(list(in_bucket.list_files())) == 1


def test_pieces_of_an_upload_that_fails_are_removed(in_bucket: Store, bucket: Bucket) -> None:
    bucket.fail["piece"] = 99
    with pytest.raises(StorageUnavailable):
        saved(in_bucket, ONE, bytes(2 * PIECE + 7))
    assert not bucket.uploads
    assert not bucket.objects
    bucket.fail.clear()
    assert saved(in_bucket, ONE, bytes(2 * PIECE + 7)) in bucket.objects


def test_pieces_that_a_killed_process_left_are_removed_after_a_grace_time(in_bucket: Store, bucket: Bucket) -> None:
    client = in_bucket._client  # type: ignore[attr-defined]
    for _ in range(2):
        client.create_multipart_upload(Bucket=BUCKET, Key=f"files/{ONE}/{'0' * 64}")
    assert in_bucket.abort_unfinished(3600) == 0
    assert len(bucket.uploads) == 2
    time.sleep(1.1)
    assert in_bucket.abort_unfinished(1) == 2
    assert not bucket.uploads


def test_a_store_that_is_away_is_an_error_of_the_api(in_bucket: Store) -> None:
    env = Env.from_environment(settings.ENV.variables() | {"PLATFORM_CDN_S3_ENDPOINT": "http://127.0.0.1:9"})
    s3_store.cache_clear()
    with patch.object(settings, "ENV", env), patch("cdn.storage.s3._ATTEMPTS", 1):
        away = store_file()
        for use in (lambda: saved(away, ONE, b"x"), lambda: list(away.list_files()), lambda: away.remove_all(ONE)):
            with pytest.raises(StorageUnavailable):
                use()
        assert "cannot be read" in away.problem()


@pytest.mark.parametrize("make", [lambda: new_id("file")])
def test_ids_of_files_are_ids_of_the_store(make: Callable[[], str]) -> None:
    assert original_key(make(), "0" * 64).startswith("files/file_")
