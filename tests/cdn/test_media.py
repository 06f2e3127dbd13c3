"""The worker `media`: received bytes become a published file with what was found out, or a refusal that says why."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

import pytest
import pyvips
from django.conf import settings
from django.db import connection

from cdn import storage
from cdn.errors import ClaimLost
from cdn.media import claims, pipeline, sweep
from cdn.media.runner import InspectionKilled, InspectionUnavailable
from cdn.models import File, Pool, new_file_id
from cdn.services import processing
from cdn.services.files import file_trash
from cdn.states import FileStatus
from cdn.storage.errors import StorageUnavailable
from cdn.storage.places import cdn_folder
from tests.callers import Caller
from tests.cdn import hostile
from tests.cdn.received import policy_set, processed_file, received_file

pytestmark = pytest.mark.django_db(transaction=True)
SMALL = {"small": {"width": 40, "height": 40, "fit": "contain", "format": "webp"}}


def stored(file: File) -> set[str]:
    return {found.key for found in storage.file_store().list_files() if found.file_id == file.pk}


def beside_the_store(file: File) -> bool:
    """Whether a part file or a work folder is left."""
    return storage.part_path(file.pk).exists() or (cdn_folder("work") / file.pk).exists()


def counters(file: File) -> tuple[int, int]:
    pool = Pool.objects.get(owner=file.account_id)
    return pool.stored_bytes, pool.reserved_bytes


def test_a_picture_is_published_with_its_size_and_variants(api: Caller) -> None:
    data = hostile.picture(".jpg", 320, 200)
    wanted = {**SMALL, "square": {"width": 50, "height": 50, "fit": "cover"}}
    file = processed_file(api.account, data, "cat.txt", content_type="text/plain", variants=wanted)
    assert (file.status, file.error) == ("active", None)
    assert (file.kind, file.content_type, file.extension) == ("image", "image/jpeg", "jpg")
    assert (file.width, file.height, file.duration_seconds, file.size) == (320, 200, None, len(data))
    small, square = file.variants.all()
    assert (small.name, small.width, small.height, small.content_type) == ("small", 40, 25, "image/webp")
    assert (square.name, square.width, square.height, square.content_type) == ("square", 50, 50, "image/jpeg")
    assert file.footprint == len(data) + small.size + square.size
    assert counters(file) == (file.footprint, 0)
    assert stored(file) == {
        storage.original_key(file.pk, sha256(data).hexdigest()),
        storage.variant_key(file.pk, 0, small.sha256),
        storage.variant_key(file.pk, 1, square.sha256),
    }
    assert not beside_the_store(file)


def test_variants_lie_in_the_store_as_their_rows_say(api: Caller) -> None:
    file = processed_file(api.account, hostile.picture(".png"), variants=SMALL)
    variant = file.variants.get()
    with storage.file_store().open_local(storage.variant_key(file.pk, 0, variant.sha256)) as opened:
        data = opened.read()
    assert (len(data), sha256(data).hexdigest()) == (variant.size, variant.sha256)
    image = pyvips.Image.new_from_buffer(data, "")
    assert (image.width, image.height) == (variant.width, variant.height)


def test_the_original_stays_as_it_was_uploaded(api: Caller) -> None:
    data = hostile.picture(".jpg") + b"what follows the picture"
    file = processed_file(api.account, data, variants=SMALL)
    with storage.file_store().open_local(storage.original_key(file.pk, file.sha256)) as opened:
        assert opened.read() == data


def test_a_movie_is_published_with_size_and_duration(api: Caller) -> None:
    file = processed_file(api.account, hostile.movie("mp4", 2, audio=True))
    assert (file.status, file.kind, file.width, file.height) == ("active", "video", 64, 48)
    assert file.duration_seconds == pytest.approx(2, abs=0.1)


def test_a_movie_without_pictures_is_published_as_audio(api: Caller) -> None:
    file = processed_file(api.account, hostile.movie("mp4", audio=True, width=0), content_type="video/mp4")
    assert (file.kind, file.content_type, file.extension) == ("audio", "audio/mp4", "m4a")


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"", "text/plain"),
        (b"plain", "text/plain"),
        (b"<html><script>alert(1)</script>", "text/html"),
        (hostile.SCRIPT_SVG.encode(), "image/svg+xml"),
        (bytes(range(256)) * 3, "application/octet-stream"),
    ],
)
def test_what_is_not_looked_at_is_published_as_it_came(api: Caller, data: bytes, content_type: str) -> None:
    file = processed_file(api.account, data, "picture.png", content_type="image/png")
    assert (file.status, file.content_type, file.width, file.duration_seconds) == ("active", content_type, None, None)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".gif", ".avif"])
def test_half_a_picture_is_published_without_a_size_unless_a_limit_or_a_variant_needs_it(
    api: Caller, suffix: str
) -> None:
    data = hostile.picture(suffix)
    half = data[: len(data) // 2]
    file = processed_file(api.account, half)
    assert (file.status, file.kind, file.width, file.height) == ("active", "image", None, None)
    wanted = processed_file(api.account, half, variants=SMALL)
    assert wanted.error["details"] == {"rule": "variants", "limit": "decodable", "actual": "damaged"}
    policy_set(api.account, maxWidth=10_000)
    limited = processed_file(api.account, half)
    assert limited.error["code"] == "cdn_policy_violation"
    assert limited.error["details"] == {"rule": "maxWidth", "limit": 10_000, "actual": None}


@pytest.mark.parametrize(
    ("policy", "data", "details"),
    [
        ({"maxWidth": 300}, lambda: hostile.picture(".png", 301, 9), {"rule": "maxWidth", "limit": 300, "actual": 301}),
        ({"maxHeight": 8}, lambda: hostile.picture(".gif", 30, 9), {"rule": "maxHeight", "limit": 8, "actual": 9}),
        ({"maxWidth": 63}, lambda: hostile.movie("webm"), {"rule": "maxWidth", "limit": 63, "actual": 64}),
        (
            {"maxWidth": 30_000},
            lambda: hostile.huge_png(),
            {"rule": "pixels", "limit": 50_000_000, "actual": 900_000_000},
        ),
        ({"maxHeight": 30_000}, lambda: hostile.long_gif(), {"rule": "frames", "limit": 60, "actual": 10_000}),
        ({"maxWidth": 9}, lambda: hostile.SCRIPT_SVG.encode(), {"rule": "maxWidth", "limit": 9, "actual": None}),
        (
            {"allowedKinds": ["video"]},
            lambda: b"plain",
            {"rule": "allowedKinds", "limit": ["video"], "actual": "document"},
        ),
        (
            {"allowedKinds": ["video"]},
            lambda: hostile.movie("mp4", audio=True, width=0),
            {"rule": "allowedKinds", "limit": ["video"], "actual": "audio"},
        ),
    ],
)
def test_what_the_policy_refuses_is_named_and_leaves_nothing(
    api: Caller, policy: dict[str, object], data: Callable[[], bytes], details: dict[str, object]
) -> None:
    """The policy changes after the permit: what was permitted then is refused now."""
    file = received_file(api.account, data())
    policy_set(api.account, **policy)
    assert pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert (file.status, file.error["code"], file.error["details"]) == ("rejected", "cdn_policy_violation", details)
    assert len(file.error["message"]) > 20
    assert counters(file) == (0, 0)
    assert stored(file) == set()
    assert not beside_the_store(file)


def test_a_forged_duration_does_not_pass_the_limit(api: Caller) -> None:
    policy_set(api.account, maxDurationSeconds=5)
    forged = hostile.forged_duration(hostile.movie("mp4", 10), 1)
    file = processed_file(api.account, forged)
    assert file.error["details"] == {"rule": "maxDurationSeconds", "limit": 5, "actual": 10.0}
    honest = processed_file(api.account, hostile.forged_duration(hostile.movie("mp4", 3), 3600))
    assert (honest.status, honest.duration_seconds) == ("active", 3.0)


@pytest.mark.parametrize("data", [b"plain", hostile.SCRIPT_SVG.encode(), hostile.sound()])
def test_variants_of_what_is_no_picture_are_refused(api: Caller, data: bytes) -> None:
    file = processed_file(api.account, data, variants=SMALL)
    assert (file.status, file.error["details"]["rule"]) == ("rejected", "variants")
    assert file.error["details"]["limit"] == ["image/avif", "image/gif", "image/jpeg", "image/png", "image/webp"]


def test_a_quota_lowered_since_the_permit_refuses_the_file(api: Caller) -> None:
    file = received_file(api.account, hostile.picture(".png"))
    policy_set(api.account, maxTotalBytes=10)
    pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert (file.status, file.error["code"]) == ("rejected", "cdn_quota_exceeded")
    assert stored(file) == set()
    assert not beside_the_store(file)


def test_a_full_store_and_a_process_that_does_not_start_leave_the_file_to_a_later_attempt(api: Caller) -> None:
    file = received_file(api.account, hostile.picture(".png"), variants=SMALL)
    failures = [
        patch.object(storage.file_store(), "save", side_effect=StorageUnavailable),
        patch.object(pipeline, "inspection_run", side_effect=InspectionUnavailable),
        patch.object(pipeline, "inspection_run", side_effect=OSError(28, "No space left on device")),
    ]
    for _ in range(3):
        for failure in failures:
            with failure:
                assert pipeline.file_process(file.pk)
            file.refresh_from_db()
            assert (file.status, file.claim, file.attempts) == ("processing", "", 0)
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
        assert (file.status, file.claim, file.attempts) == ("processing", "", 0)
        assert processed_file(api.account, b"words").status == "active"
    assert pipeline.file_process(file.pk)
    file.refresh_from_db()
    assert file.status == "active"


def test_nothing_is_stored_of_a_file_that_is_cancelled_while_it_is_stored(api: Caller) -> None:
    """As to a store that takes its time: the bytes there are removed first, and stored after it."""
    file = received_file(api.account, b"plain")
    store, save = storage.file_store(), storage.file_store().save

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
    with patch.object(pipeline, "inspection_run", side_effect=InspectionKilled):
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
        assert (file.status, file.attempts) == ("processing", pipeline.ATTEMPTS_MAX)
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
    claimed = processing.processing_claim(file.pk, "test")
    assert claimed is not None
    with patch.object(claims, "HEARTBEAT_SECONDS", 0.01), claims.claim_held(claimed) as held:
        for expected in (claimed.claim, "media-another"):
            File.objects.filter(pk=file.pk).update(claim=expected, claim_until=None)
            for _ in range(500):
                file.refresh_from_db()
                if file.claim_until is not None or held._lost.wait(0.01):
                    break
        assert held._lost.is_set()
        with pytest.raises(ClaimLost):
            held.require_held()


def test_files_whose_task_was_lost_are_found(api: Caller) -> None:
    files = [received_file(api.account, data) for data in (b"one", b"two")]
    File.objects.update(claim_until=None)
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
    with patch("cdn.media.notifications.current_app.send_task") as send:
        file = received_file(api.account, b"plain")
    send.assert_called_once()
    assert send.call_args.args == ("cdn.tasks.process_next",)
    assert send.call_args.kwargs["queue"] == "media"
    assert sweep.next_process()
    file.refresh_from_db()
    assert file.status == FileStatus.ACTIVE
    with patch("cdn.media.notifications.current_app.send_task", side_effect=OSError("no broker")):
        assert received_file(api.account, b"plain").status == FileStatus.PROCESSING


def test_a_picture_that_is_too_large_to_decode_is_published_without_its_size(api: Caller) -> None:
    file = processed_file(api.account, hostile.huge_png())
    assert (file.status, file.content_type, file.width, file.height) == ("active", "image/png", None, None)
