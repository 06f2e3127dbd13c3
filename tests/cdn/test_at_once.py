"""Many permits at once, on both databases: exactly as many succeed as there is room for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q

from cdn.errors import CdnQuotaExceeded
from cdn.models import File, PlanLimits, Pool
from cdn.services import files, processing, sweeps, uploads
from cdn.services.counter_check import account_check
from cdn.services.limits import namespace_quota_set
from credits.models import Hold
from namespaces.models import Namespace
from tests.callers import Caller
from tests.cdn.rows import SHA, facts_of, make_file, make_permit, upload

pytestmark = pytest.mark.django_db(transaction=True)
THREADS = 12


def at_once(work: Any, count: int) -> list[Any]:
    """What `work(number)` returned or raised, for each number."""

    def run(number: int) -> Any:
        try:
            return work(number)
        except Exception as exc:
            return exc
        finally:
            connection.close()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(count)))


def require_ten(api: Caller, found: list[Any]) -> None:
    refused = [each for each in found if isinstance(each, Exception)]
    assert len(refused) == 90
    assert {type(each) for each in refused} == {CdnQuotaExceeded}
    assert File.objects.count() == Hold.objects.count() == 10
    assert Pool.objects.get(pk=api.account.pk).reserved_bytes == 1000
    assert account_check(api.account.pk) == []


def test_a_hundred_permits_over_one_namespace_with_room_for_ten(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account)
    namespace_quota_set(namespace=namespace, changes={"cdn_max_bytes": 1099}, actor="test")
    require_ten(api, at_once(lambda _: make_permit(api.account, namespace), 100))


def test_a_hundred_permits_over_two_namespaces_that_share_an_account(api: Caller) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    places = [Namespace.objects.get(account=api.account, is_default=True), other]
    PlanLimits.objects.filter(pk=api.account.plan_id).update(max_bytes=1099)
    require_ten(api, at_once(lambda number: make_permit(api.account, places[number % 2]), 100))


def test_a_hundred_permits_with_ten_uploads_allowed_at_once(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account)
    changes = {"policy": {"maxConcurrentUploads": 10}}
    namespace_quota_set(namespace=namespace, changes=changes, actor="test")
    require_ten(api, at_once(lambda _: make_permit(api.account, namespace), 100))


def test_one_of_many_uploads_has_the_lease(api: Caller) -> None:
    issued = make_permit(api.account)

    def begin(number: int) -> Any:
        return uploads.upload_begin(issued.token, length=None, offset=None, owner=f"owner-{number}")

    found = at_once(begin, 20)
    assert [type(each).__name__ for each in found].count("UploadGrant") == 1


def test_one_of_many_processes_publishes(api: Caller) -> None:
    file = upload(make_permit(api.account))
    claims = at_once(lambda number: processing.processing_claim(file.pk), 12)
    (claim,) = [each for each in claims if each is not None]
    published = at_once(lambda _: processing.processing_publish(claim, facts_of(file), []), 6)
    assert [type(each).__name__ for each in published].count("File") == 1
    assert account_check(api.account.pk) == []


def test_trash_restore_and_purge_at_once_lose_no_bytes(api: Caller) -> None:
    made = [make_file(api.account) for _ in range(6)]

    def change(number: int) -> Any:
        file = made[number % 6]
        if number % 3 == 0:
            return files.file_trash(file=file, actor="test")
        if number % 3 == 1:
            return files.file_restore(file=file, actor="test")
        return files.trash_purge(account=api.account, within=Q(pk=file.pk), actor="test")

    at_once(change, 60)
    sweeps.purges_continue()
    assert account_check(api.account.pk) == []


def test_expiry_and_the_end_of_an_upload_at_once(api: Caller) -> None:
    for _ in range(8):
        issued = make_permit(api.account)
        grant = uploads.upload_begin(issued.token, length=None, offset=None, owner="a")
        steps = [
            lambda grant=grant: uploads.upload_complete(grant, 100, SHA),
            lambda issued=issued: files.file_trash(file=issued.file, actor="test"),
        ]
        at_once(lambda number, steps=steps: steps[number](), 2)
        assert account_check(api.account.pk) == []
