"""kill -9 of the worker `media` at each step: the file is published or rejected once, and nothing is left."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from cdn import storage
from cdn.media import pipeline, sweep
from cdn.models import File, Pool
from cdn.services.storage_check import storage_check
from cdn.storage.places import cdn_folder
from tests.callers import Caller
from tests.cdn import hostile
from tests.cdn.killed_media import PLACES, REFUSAL_PLACES, media_killed
from tests.cdn.received import policy_set, received_file
from tests.run_extent import campaign_after

pytestmark = pytest.mark.django_db(transaction=True)
MARK = 4000 + os.getpid() % 4000
SMALL = {"small": {"width": 40, "height": 40, "format": "webp"}}


def next_attempt(file: File) -> File:
    """When the dead process's claim has expired."""
    File.objects.filter(pk=file.pk, status="processing").update(lease_until=timezone.now() - timedelta(seconds=1))
    sweep.due_process()
    sweep.ended_parts_remove()
    file.refresh_from_db()
    return file


def assert_nothing_beside_the_store(file: File) -> None:
    assert not storage.part_path(file.pk).exists()
    assert not (cdn_folder("work") / file.pk).exists()


# Without the rest: before the row says that it is published, before its reservation ends, and after the last one.
@pytest.mark.parametrize("place", campaign_after(4, [*PLACES[-4:], *PLACES[:-4]]))
def test_a_file_is_published_once_whenever_the_worker_is_killed(api: Caller, place: str) -> None:
    data = hostile.picture(".png")
    file = received_file(api.account, data, variants=SMALL)
    media_killed(file.pk, place)
    file = next_attempt(file)
    assert (file.status, file.width, file.variants.count()) == ("active", 320, 1)
    pool = Pool.objects.get(owner=api.account.pk)
    assert (pool.stored_bytes, pool.stored_files, pool.month_bytes) == (file.footprint, 1, file.footprint)
    assert (pool.reserved_bytes, pool.reserved_files) == (0, 0)
    assert_nothing_beside_the_store(file)
    assert storage_check() == ([], 0)


@pytest.mark.parametrize("place", campaign_after(1, REFUSAL_PLACES))
def test_a_file_is_rejected_once_whenever_the_worker_is_killed(api: Caller, place: str) -> None:
    file = received_file(api.account, hostile.picture(".png"), variants=SMALL)
    policy_set(api.account, maxWidth=100)
    media_killed(file.pk, place)
    file = next_attempt(file)
    assert (file.status, file.error["details"]["rule"]) == ("rejected", "maxWidth")
    pool = Pool.objects.get(owner=api.account.pk)
    assert (pool.stored_bytes, pool.reserved_bytes, pool.rejected_files) == (0, 0, 1)
    assert_nothing_beside_the_store(file)
    assert storage_check() == ([], 0)


def test_a_claim_of_a_living_process_is_not_taken_away(api: Caller) -> None:
    file = received_file(api.account, b"plain")
    media_killed(file.pk, PLACES[0])
    assert not pipeline.file_process(file.pk)
    assert sweep.due_process() == 0


def test_a_confined_process_ends_with_its_worker(api: Caller) -> None:
    """The worker dies as the process looks at the file."""
    file = received_file(api.account, hostile.picture(".png"), variants={"marked": {"width": MARK}})
    media_killed(file.pk, "before cdn.media.runner._read_answer")
    deadline = time.monotonic() + 120
    while inspecting() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert inspecting() == []
    assert next_attempt(file).status == "active"


def inspecting() -> list[str]:
    """The process ids of those that look at this test's file; other tests run on the same host."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"cdn.inspection" in words and str(MARK).encode() in words[-2]:
            found.append(path.parent.name)
    return found
