"""Attempts at files: what goes wrong in one, claims, two processes, what a lost task or a killed process left."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from django.conf import settings
from django.db import connection

from cdn import storage
from cdn.media import claims, pipeline, sweep
from cdn.media.runner import InspectionKilled, InspectionUnavailable
from cdn.models import File, new_file_id
from cdn.services import processing
from cdn.services.files import file_trash
from cdn.states import FileStatus
from cdn.storage.errors import StorageUnavailable
from common.work.leases import ClaimLost
from tests.callers import Caller
from tests.cdn import hostile
from tests.cdn.media_rows import SMALL, beside_the_store, counters, stored
from tests.cdn.received import processed_file, received_file

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_full_store_and_a_process_that_does_not_start_leave_the_file_to_a_later_attempt(api: Caller) -> None:
    file = received_file(api.account, hostile.picture(".png"), variants=SMALL)
    failures = [
        patch.object(storage.store_file(), "save", side_effect=StorageUnavailable),
        patch.object(pipeline, "run_inspection", side_effect=InspectionUnavailable),
        patch.object(pipeline, "run_inspection", side_effect=OSError(28, "No space left on device")),
    ]
    for _ in range(3):
        for failure in failures:
            with failure:
                assert pipeline.file_process(file.pk)
            file.refresh_from_db()
            assert (file.status, file.claim, file.attempt) == ("processing", "", 0)
    assert pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert file.status == "active"


def test_variants_leave_the_hosts_reserve_alone(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """As uploads do: the disk that a tenant fills is the database's, too."""
    file = received_file(api.account, hostile.picture(".png"), variants=SMALL)
    with monkeypatch.context() as full:
        full.setattr(settings, "ENV", settings.ENV.model_copy(update={"disk_reserve_mb": 1 << 40}))
        assert pipeline.file_process(file.pk)
        file.refresh_from_db()
        assert (file.status, file.claim, file.attempt) == ("processing", "", 0)
        assert processed_file(api.account, b"words").status == "active"
    assert pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert file.status == "active"


def test_nothing_is_stored_of_a_file_that_is_cancelled_while_it_is_stored(api: Caller) -> None:
    """As to a store that takes its time: the bytes there are removed first, and stored after it."""
    file = received_file(api.account, b"plain")
    store, save = storage.store_file(), storage.store_file().save

    def slowly(path: Path, key: str) -> None:
        copy = path.with_name(new_file_id())
        copy.write_bytes(path.read_bytes())
        file_trash(file=file, actor="test")
        save(copy, key)
        copy.unlink()

    with patch.object(store, "save", slowly):
        assert pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert (file.status, file.error["code"], stored(file)) == ("rejected", "cancelled", set())


def test_a_host_without_memory_for_a_moment_refuses_no_picture(api: Caller) -> None:
    """One with which the process is killed each time is refused in the end."""
    good, bad = (received_file(api.account, hostile.picture(".png"), variants=SMALL) for _ in range(2))
    with patch.object(pipeline, "run_inspection", side_effect=InspectionKilled):
        assert pipeline.file_process(good.pk)
        for _ in range(pipeline.ATTEMPTS_MAX + 1):
            assert pipeline.file_process(bad.pk)
    assert pipeline.file_process(good.pk)
    for file in (good, bad):
        file.refresh_from_db()
    assert (good.status, bad.status, bad.error["code"]) == ("active", "rejected", "processing_failed")


def test_a_file_that_fails_the_worker_again_and_again_is_rejected(api: Caller) -> None:
    file = received_file(api.account, b"plain")
    with patch.object(pipeline, "type_sniff", side_effect=ZeroDivisionError):
        for _ in range(pipeline.ATTEMPTS_MAX):
            assert pipeline.file_process(file.pk)
        file.refresh_from_db()
        assert (file.status, file.attempt) == ("processing", pipeline.ATTEMPTS_MAX)
        assert pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert (file.status, file.error["code"]) == ("rejected", "processing_failed")
    assert not beside_the_store(file)


def test_bytes_that_were_lost_or_cut_reject_the_file(api: Caller) -> None:
    for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(b"pl")):
        file = received_file(api.account, b"plain")
        damage(storage.part_path(file.pk))
        pipeline.file_process(file.pk)
        file.refresh_from_db()
        assert (file.status, file.error["code"]) == ("rejected", "processing_failed")


def test_a_part_that_is_a_link_is_not_followed(api: Caller) -> None:
    file = received_file(api.account, b"12345")
    part = storage.part_path(file.pk)
    other = part.with_name("file_aaaaaaaaaaaaaaaa")
    other.write_bytes(b"54321")
    part.unlink()
    part.symlink_to(other)
    pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert file.status == "processing"
    assert stored(file) == set()
    other.unlink()


def test_two_processes_publish_a_file_once(api: Caller) -> None:
    file = received_file(api.account, hostile.picture(".png"), variants=SMALL)
    results: list[bool] = []

    def process() -> None:
        results.append(pipeline.file_process(file.pk))
        connection.close()

    threads = [threading.Thread(target=process) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, False, False, True]
    file.refresh_from_db()
    assert file.status == "active"
    assert counters(file) == (file.footprint, 0)


def test_a_process_that_lost_its_claim_writes_nothing(api: Caller) -> None:
    """It was stopped for so long that another process has begun again."""
    file = received_file(api.account, b"plain")
    original = pipeline.type_sniff

    def lose(head: bytes) -> object:
        File.objects.filter(pk=file.pk).update(claim="media-another")
        return original(head)

    with patch.object(pipeline, "type_sniff", lose):
        assert pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert (file.status, file.claim) == ("processing", "media-another")
    assert counters(file)[0] == 0


def test_a_claim_is_renewed_while_a_file_is_looked_at_and_its_loss_is_noticed(api: Caller) -> None:
    file = received_file(api.account, b"plain")
    claimed = processing.processing_claim(file.pk)
    assert claimed is not None
    with patch.object(claims, "HEARTBEAT_SECONDS", 0.01), claims.file_held(claimed) as held:
        for expected in (claimed.claim, "media-another"):
            File.objects.filter(pk=file.pk).update(claim=expected, lease_until=None)
            for _ in range(500):
                file.refresh_from_db()
                if file.lease_until is not None or is_lost(held):
                    break
        assert is_lost(held)


def is_lost(held: claims.HeldFile) -> bool:
    time.sleep(0.01)
    try:
        held.require_held()
    except ClaimLost:
        return True
    return False


def test_files_whose_task_was_lost_are_found(api: Caller) -> None:
    files = [received_file(api.account, data) for data in (b"one", b"two")]
    File.objects.update(lease_until=None)
    assert sweep.due_process() == 2
    assert set(File.objects.values_list("status", flat=True)) == {"active"}
    assert sweep.due_process() == 0
    assert all(not beside_the_store(file) for file in files)


def test_what_a_killed_process_left_of_an_ended_file_is_removed(api: Caller) -> None:
    done, waiting = processed_file(api.account, b"done"), received_file(api.account, b"waiting")
    for file in (done, waiting):
        storage.part_path(file.pk).write_bytes(b"left")
        (storage.work_folder(file.pk) / "0").write_bytes(b"left")
    assert sweep.ended_parts_remove() == 1
    assert not beside_the_store(done)
    assert beside_the_store(waiting)


def test_the_worker_is_woken_when_bytes_have_arrived(api: Caller) -> None:
    with patch("common.work.wakeups.current_app.send_task") as send:
        file = received_file(api.account, b"plain")
    send.assert_called_once()
    assert send.call_args.args == ("cdn.tasks.process_next",)
    assert send.call_args.kwargs["queue"] == "media"
    assert sweep.next_process()
    file.refresh_from_db()
    assert file.status == FileStatus.ACTIVE
    with patch("common.work.wakeups.current_app.send_task", side_effect=OSError("no broker")):
        assert received_file(api.account, b"plain").status == FileStatus.PROCESSING
