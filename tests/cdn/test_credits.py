"""Credits of the service `cdn`: held at the permit, settled at publication, given back; the hard block; who pays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest
from django.conf import settings
from django.utils import timezone

from cdn.models import File, Permit
from cdn.services import processing, sweeps, uploads
from credits import ledger
from credits.models import Balance, Entry, Hold, Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.cdn.rows import make_permit, publish, upload, variant_facts
from tests.webhooks.outbox import published, subscribe
from tests.world import assert_error

pytestmark = pytest.mark.django_db
GB = 10**9
NEW = {"filename": "a", "size": GB, "contentType": ""}


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account, is_default=True)


def balance() -> Balance:
    return Balance.objects.get(service=Service.CDN)


def set_quota(namespace: Namespace, limit: str, overdraft: str = "0") -> None:
    fields: dict[str, Any] = {"action": "block", "thresholds": []}
    ledger.quota_set(
        namespace=namespace, service=Service.CDN, limit=Decimal(limit), overdraft=Decimal(overdraft), **fields
    )


@pytest.mark.parametrize("is_personal", [False, True])
def test_what_is_held_is_settled_with_what_it_took(api: Caller, default: Namespace, is_personal: bool) -> None:
    """Files without a namespace are paid by the default one."""
    issued = make_permit(api.account, None if is_personal else default, size=GB)
    assert (balance().held, balance().used) == (Decimal("0.1"), 0)
    assert balance().namespace_id == default.pk
    publish(upload(issued, GB // 2), variant_facts("v", GB // 10))
    assert (balance().held, balance().used) == (0, Decimal("0.06"))
    assert Entry.objects.get().description == f"CDN: {issued.file.pk}"


YEAR = timedelta(days=365)


@contextmanager
def clock(ahead: timedelta) -> Iterator[None]:
    real = timezone.now
    with patch.object(timezone, "now", lambda: real() + ahead):
        yield


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_permit_from_before_the_clock_was_set_back_has_its_length(
    api: Caller, default: Namespace, is_begun: bool
) -> None:
    with clock(YEAR):
        issued = make_permit(api.account, default, size=GB)
        if is_begun:
            uploads.upload_begin(issued.token, length=None, offset=None, owner="lost")
    assert sweeps.permits_expire() == 0
    seconds = settings.ENV.cdn_upload_seconds if is_begun else settings.ENV.cdn_permit_seconds
    if is_begun:  # the process with the lease is gone: another request goes on
        uploads.upload_begin(issued.token, length=None, offset=None, owner="next")
    with clock(timedelta(seconds=seconds + 1)):
        assert sweeps.permits_expire() == 1
    assert (balance().held, balance().used) == (0, 0)


def test_a_file_that_was_received_before_the_clock_was_set_back_has_its_deadline(
    api: Caller, default: Namespace
) -> None:
    with clock(YEAR):
        upload(make_permit(api.account, default, size=GB))
    assert processing.processing_expire() == 0
    with clock(timedelta(seconds=settings.ENV.cdn_processing_seconds + 1)):
        assert processing.processing_expire() == 1
    assert (balance().held, balance().used) == (0, 0)


def test_a_permit_that_expires_gives_its_credits_back(api: Caller, default: Namespace) -> None:
    issued = make_permit(api.account, default, size=GB)
    Permit.objects.update(expires_at="2000-01-01T00:00:00Z")
    assert [sweeps.permits_expire() for _ in range(2)] == [1, 0]
    assert (balance().held, balance().used) == (0, 0)
    shown = api.get(f"/cdn/files/{issued.file.pk}").json()["file"]
    assert (shown["status"], shown["error"]["code"]) == ("rejected", "permit_expired")


def test_a_file_that_is_not_looked_at_in_time_is_rejected(api: Caller, default: Namespace) -> None:
    upload(make_permit(api.account, default, size=GB))
    File.objects.update(deadline_at="2000-01-01T00:00:00Z")
    assert [processing.processing_expire() for _ in range(2)] == [1, 0]
    assert File.objects.get().error["code"] == "processing_failed"
    assert (balance().held, balance().used) == (0, 0)


def test_a_permit_without_credits_is_refused_and_nothing_is_written(api: Caller, default: Namespace) -> None:
    set_quota(default, "0.15")
    assert api.post("/cdn/token", {**NEW, "namespace": "default"}).status_code == 201
    for body in ({**NEW, "namespace": "default"}, NEW):
        refused = api.post("/cdn/token", body)
        assert_error(refused, 402, "quota_exceeded")
        assert refused.json()["details"]["service"] == "cdn"
    assert File.objects.count() == Hold.objects.count() == 1
    assert api.get("/cdn/usage").json()["data"]["reserved"] == {"bytes": GB, "files": 1}


def test_the_first_permit_without_room_is_exhaustion_and_announced_once(api: Caller, default: Namespace) -> None:
    subscribe(api.account)
    set_quota(default, "0.15")
    assert api.post("/cdn/token", NEW).status_code == 201
    for _ in range(3):
        details = api.post("/cdn/token", NEW).json()["details"]
        assert (details["quota_used"], details["held"]) == (0, 0.1)
    [(name, data)] = published(api.account)
    assert (name, data["service"], data["quota_used"]) == ("credits.depleted", "cdn", 0)


def test_the_hard_block_refuses_permits(api: Caller, default: Namespace) -> None:
    issued = make_permit(api.account, default, size=GB)
    publish(upload(issued))
    set_quota(default, "0.05")
    assert_error(api.post("/cdn/token", {**NEW, "size": 0}), 402, "quota_exceeded")


def test_in_the_overdraft_a_permit_carries_the_warning(api: Caller, default: Namespace) -> None:
    publish(upload(make_permit(api.account, default, size=GB)))
    set_quota(default, "0.05", "10")
    answer = api.post("/cdn/token", {**NEW, "namespace": "default"})
    assert answer.status_code == 201
    assert answer["X-Credit-Warning"] == "overdraft; service=cdn; used=0.1; limit=0.05"


def test_a_namespace_that_is_suspended_takes_no_uploads(api: Caller) -> None:
    Namespace.objects.create(account=api.account, name="Other", slug="other")
    api.post("/namespaces/other/suspend")
    assert_error(api.post("/cdn/token", {**NEW, "namespace": "other"}), 403, "namespace_suspended")
