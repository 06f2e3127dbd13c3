"""Files of challenges: on a full disk, left over, too many of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from certificates import services, tokens
from certificates.models import Certificate
from certificates.steps import certificate_step
from edge.challenges import challenges_folder
from tests.certificates.fake_ca import FakeCa, open_fake_ca
from tests.certificates.pebble import settings_with
from tests.certificates.rows import certificate_make

pytestmark = pytest.mark.django_db
NAME = "a.example.org"


@pytest.fixture
def folder() -> Iterator[Path]:
    found = challenges_folder(settings.STATE)
    found.mkdir(parents=True, exist_ok=True)
    yield found
    for path in found.iterdir():
        path.unlink()


@pytest.fixture
def fake(announced: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCa]:
    """It has one challenge for each of an order's authorizations."""
    with open_fake_ca() as made:
        settings_with(monkeypatch, acme_directory=made.directory)
        yield made


def with_authorizations(ca: FakeCa, count: int) -> None:
    urls = [f"{ca.base}/authz/{number}" for number in range(count)]
    order = {"status": "pending", "authorizations": urls}
    ca.answers["/order"] = ca.json(201, order, Location=f"{ca.base}/order/1")
    for number in range(count):
        token = f"{number:043d}"
        challenge = {"type": "http-01", "url": f"{ca.base}/chal", "token": token, "status": "processing"}
        ca.answers[f"/authz/{number}"] = ca.json(200, {"status": "pending", "challenges": [challenge]})


def step() -> Certificate:
    services.certificate_request([NAME])
    assert certificate_step(Certificate.objects.get().pk)
    return Certificate.objects.get()


def test_a_full_disk_leaves_a_sentence_and_no_file(fake: FakeCa, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/full refuses what is written as a full disk does."""
    with_authorizations(fake, 1)
    opened = os.open

    def full(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        opened_file = opened(path, flags, mode, **options)
        if flags & os.O_WRONLY and Path(path).parent == folder:
            os.dup2(device := opened("/dev/full", os.O_WRONLY), opened_file)
            os.close(device)
        return opened_file

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        row = step()
    assert list(folder.iterdir()) == []
    assert (row.status, row.claim) == ("pending", "")
    assert row.error.startswith("The platform cannot store")
    assert row.due_at > timezone.now()
    now = timezone.now()
    Certificate.objects.update(due_at=now, next_attempt_at=now)
    fake.answers["/order/1"] = fake.answers["/order"]
    certificate_step(row.pk)
    assert [path.name for path in folder.iterdir()] == [f"{0:043d}"]
    assert fake.asked.count("/order") == 1, "the same order goes on"


def test_an_order_of_very_many_authorizations_is_refused(fake: FakeCa, folder: Path) -> None:
    with_authorizations(fake, 200)
    assert step().error.startswith("The CA's answer was not valid.")
    assert list(folder.iterdir()) == []


def test_what_no_order_needs_is_removed_after_an_hour(folder: Path) -> None:
    certificate_make(NAME, challenge_token="n" * 43)
    for name, age in {"n" * 43: 7200, "o" * 43: 7200, ".temporary": 7200, "y" * 43: 60, "f" * 43: -90_000}.items():
        (folder / name).write_text("x")
        os.utime(folder / name, (time.time() - age,) * 2)
    tokens.prune_tokens()
    assert sorted(path.name for path in folder.iterdir()) == ["n" * 43, "y" * 43]
