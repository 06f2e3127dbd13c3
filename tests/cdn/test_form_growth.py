"""Forms of unknown length: their permits grow with the bytes that come, and end with what has begun them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db.models import F
from django.utils import timezone

from accounts.models import Credential
from accounts.services import account_switch
from cdn import hooks
from cdn.form_uploads import receiving
from cdn.media.pipeline import file_process
from cdn.models import File, Permit, Pool
from cdn.services import uploads
from cdn.services.counter_check import account_check
from cdn.services.files import file_trash
from cdn.services.growth import SMALLEST_STEP
from cdn.services.permits import NewFile, permit_create
from cdn.services.sweeps import permits_expire
from cdn.storage.places import cdn_folder
from cdn.uploads import places
from common import streaming_body
from config.database import POOL_SIZE
from credits.ledger import quota_set
from credits.models import Balance, Hold, Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.cdn.edge_files import files_clear
from tests.cdn.forms import form, posted, token_of, uploaded
from tests.cdn.received import policy_set
from tests.cdn.uploading import Answer, Upload, until

pytestmark = pytest.mark.django_db(transaction=True)
LARGE = os.urandom(3 << 20)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bytes are passed on soon, and each file is looked at once its upload is committed."""
    monkeypatch.setattr(streaming_body, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(streaming_body, "DRAIN_SECONDS", 0.1)
    monkeypatch.setattr(streaming_body, "LINGER_SECONDS", 0.1)
    files_clear()
    with patch.object(hooks.file_received, "_handlers", [file_process]):
        yield
    files_clear()


def room_set(api: Caller, size: int) -> None:
    assert api.put("/cdn/namespaces/quota", {"namespace": "default", "cdn_max_bytes": size}).status_code == 200


def require_nothing_kept(api: Caller, stored: int = 0) -> None:
    """No byte, reservation or hold of an upload that has ended; `stored` bytes of earlier ones."""
    pool = Pool.objects.get(owner=api.account.pk)
    assert (pool.reserved_bytes, pool.reserved_files, pool.open_permits) == (0, 0, 0)
    assert pool.stored_bytes == stored
    assert not File.objects.exclude(status__in=("rejected", "active")).exists()
    assert (Hold.objects.count(), Balance.objects.exclude(held=0).count()) == (0, 0)
    assert [*cdn_folder("parts").iterdir()] == []
    assert account_check(api.account.pk) == []
    assert places._receiving == {}


@pytest.mark.parametrize("slack", [0, 1, SMALLEST_STEP])
@pytest.mark.parametrize("announced", [True, False])
def test_a_file_that_fits_is_taken_whether_its_length_is_known_or_not(api: Caller, slack: int, announced: bool) -> None:
    """If it is announced, the last bytes of the form may be two."""
    token = token_of(api, namespace="default")
    room_set(api, len(LARGE) + (max(slack, 2) if announced else slack))
    answer = uploaded(token, LARGE, announced=announced)
    assert (answer.status, answer.json()["size"]) == (201, len(LARGE))
    require_nothing_kept(api, len(LARGE))


@pytest.mark.parametrize("announced", [True, False])
def test_a_file_is_cut_off_where_the_quota_ends(api: Caller, announced: bool) -> None:
    token = token_of(api, namespace="default")
    room_set(api, len(LARGE) - 1)
    refused = uploaded(token, LARGE, announced=announced)
    assert (refused.status, refused.json()["code"]) == (402, "cdn_quota_exceeded")
    assert refused.json()["details"]["name"] == "cdn_max_bytes"
    assert uploaded(token, LARGE[:-1], announced=False).status == 201
    require_nothing_kept(api, len(LARGE) - 1)


def test_a_file_is_cut_off_at_the_largest_that_the_policy_allows(api: Caller) -> None:
    token = token_of(api, namespace="default")
    kinds = ("image", "video", "audio", "document", "other")
    policy_set(api.account, maxFileBytes=dict.fromkeys(kinds, 2 << 20))
    body, kind = form(bytes(64 << 20))
    refused = posted(token, body, kind, announced=False)
    assert (refused.status, refused.json()["code"]) == (400, "cdn_policy_violation")
    assert refused.json()["details"]["limit"] == 2 << 20
    # The rest is read so that the client gets its answer, and is not stored.
    assert File.objects.get().size <= 2 << 20
    assert uploaded(token, bytes(2 << 20), announced=False).status == 201
    require_nothing_kept(api, 2 << 20)


def test_a_file_is_cut_off_where_the_credits_end(api: Caller) -> None:
    """By the rate of 0.1 for a GB."""
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    quota: dict[str, Any] = {"overdraft": Decimal(0), "action": "block", "thresholds": []}
    quota_set(namespace=namespace, service=Service.CDN, limit=Decimal("0.0002"), **quota)
    refused = uploaded(token_of(api), LARGE, announced=False)
    assert (refused.status, refused.json()["code"]) == (402, "quota_exceeded")
    require_nothing_kept(api)
    assert uploaded(token_of(api), LARGE[: 1 << 20], announced=False).status == 201
    require_nothing_kept(api, 1 << 20)
    assert Balance.objects.get(service=Service.CDN).used == Decimal("0.00010486")


@pytest.mark.parametrize("announced", [True, False])
def test_twenty_at_once_never_take_more_than_the_quota(api: Caller, announced: bool) -> None:
    """Five of them have room."""
    data, most = LARGE[: 3 << 19], 8 << 20
    token = token_of(api, namespace="default")
    room_set(api, most)

    async def run() -> list[Answer]:
        requests = [request_of(token, data, announced=announced) for _ in range(20)]
        sending = [asyncio.ensure_future(each.run()) for each in requests]
        while not all(each.done() for each in sending):
            assert await used(api) <= most
            await asyncio.sleep(0.02)
        return [each.result() for each in sending]

    answers = asyncio.run(run())
    taken = sum(each.status == 201 for each in answers)
    assert {each.status for each in answers} == {201, 402}
    assert taken == 5 if announced else 1 <= taken <= 5
    require_nothing_kept(api, taken * len(data))


@sync_to_async
def used(api: Caller) -> int:
    pool = Pool.objects.filter(owner=api.account.pk).first()
    return 0 if pool is None else pool.stored_bytes + pool.reserved_bytes + pool.trashed_bytes


def request_of(token: str, data: bytes, *, announced: bool = False, pauses: bool = False) -> Upload:
    """A form in pieces. `pauses`: it does not go on after half of it."""
    body, kind = form(data)
    pieces: list[Any] = [body[at : at + 250_000] for at in range(0, len(body), 250_000)]
    if pauses:
        pieces.insert(len(pieces) // 2, asyncio.Event())
    headers = {"Authorization": f"Bearer {token}", "Content_Type": kind}
    return Upload("POST", "", pieces, path="/cdn/api", length=len(body) if announced else None, **headers)


def ended_in_the_middle(token: str, end: Callable[[], object]) -> Answer:
    """The answer to a form that is half received, once `end` was done."""

    async def run() -> Answer:
        sending = asyncio.ensure_future(request_of(token, LARGE, pauses=True).run())
        await until(lambda: sum(part.stat().st_size for part in cdn_folder("parts").iterdir()) > 1 << 20)
        await sync_to_async(end)()
        return await asyncio.wait_for(sending, 20)

    return asyncio.run(run())


def test_forms_that_stand_still_keep_no_connection_of_the_database(api: Caller) -> None:
    """More than the pool has connections, and all the others are answered."""
    requests = [request_of(token_of(api), LARGE, pauses=True) for _ in range(POOL_SIZE + 4)]
    pauses = [next(piece for piece in each._pieces if isinstance(piece, asyncio.Event)) for each in requests]

    async def run() -> list[Answer]:
        sending = [asyncio.ensure_future(each.run()) for each in requests]
        await until(lambda: are_half_received(len(requests)))
        assert (await sync_to_async(api.get)("/cdn/files")).status_code == 200
        for each in pauses:
            each.set()
        return [await each for each in sending]

    assert {answer.status for answer in asyncio.run(run())} == {201}
    require_nothing_kept(api, len(requests) * len(LARGE))


def are_half_received(count: int) -> bool:
    parts = [*cdn_folder("parts").iterdir()]
    return len(parts) == count and all(part.stat().st_size > 1 << 20 for part in parts)


@pytest.mark.parametrize("sent_bytes", [10, 60_000])
def test_a_form_whose_file_is_slow_to_begin_gives_its_place_back(
    api: Caller, monkeypatch: pytest.MonkeyPatch, sent_bytes: int
) -> None:
    """Until its permit is made a file is held in memory, however often a byte of it comes."""
    monkeypatch.setattr(receiving, "BEGIN_SECONDS", 0.5)
    answer = asyncio.run(stalled(token_of(api), sent_bytes).run())
    assert (answer.status, answer.json()["code"]) == (408, "request_timeout")
    assert (File.objects.count(), places._receiving) == (0, {})


def stalled(token: str, sent_bytes: int) -> Upload:
    """A request that never ends, of which so much comes."""
    body, kind = form(LARGE)
    headers = {"Authorization": f"Bearer {token}", "Content_Type": kind}
    pieces = [body[:sent_bytes], asyncio.Event(), body[sent_bytes:]]
    return Upload("POST", "", pieces, path="/cdn/api", length=len(body), **headers)


def test_a_form_ends_with_its_credential_while_its_file_is_awaited(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "BEGIN_SECONDS", 600.0)
    upload = stalled(token_of(api), 60_000)

    async def run() -> Answer:
        running = asyncio.ensure_future(upload.run())
        await until(lambda: places._receiving)
        await asyncio.to_thread(Credential.objects.filter(client_id=api.client_id).update, epoch=F("epoch") + 1)
        return await running

    answer = asyncio.run(run())
    assert (answer.status, answer.json()["code"]) == (401, "unauthorized")
    assert (File.objects.count(), places._receiving) == (0, {})


def test_a_form_ends_with_its_credential(api: Caller) -> None:
    answer = ended_in_the_middle(
        token_of(api), lambda: Credential.objects.filter(client_id=api.client_id).update(epoch=F("epoch") + 1)
    )
    assert (answer.status, answer.json()["code"]) == (401, "unauthorized")
    require_nothing_kept(api)


def test_a_form_ends_with_its_account(api: Caller) -> None:
    answer = ended_in_the_middle(token_of(api), lambda: account_switch(api.account, is_active=False))
    assert answer.status in (401, 404)
    require_nothing_kept(api)


def test_a_form_ends_with_its_file(api: Caller) -> None:
    answer = ended_in_the_middle(token_of(api), lambda: file_trash(file=File.objects.get(), actor="test"))
    assert (answer.status, answer.json()["code"]) == (404, "not_found")
    require_nothing_kept(api)


def test_a_suspended_namespace_gets_no_file_and_no_more_room(api: Caller) -> None:
    token = token_of(api, namespace="default")

    def suspend() -> None:
        Namespace.objects.filter(account=api.account).update(suspended_by_hand=True, status="suspended")

    async def run() -> Answer:
        request = request_of(token, LARGE * 2, pauses=True)
        sending = asyncio.ensure_future(request.run())
        await until(lambda: sum(part.stat().st_size for part in cdn_folder("parts").iterdir()) > 1 << 20)
        await sync_to_async(suspend)()
        pause = next(piece for piece in request._pieces if isinstance(piece, asyncio.Event))
        pause.set()
        return await sending

    answer = asyncio.run(run())
    assert (answer.status, answer.json()["code"]) == (403, "namespace_suspended")
    answer = uploaded(token, b"one")
    assert (answer.status, answer.json()["code"]) == (403, "namespace_suspended")
    require_nothing_kept(api)


@pytest.mark.parametrize("begun", [False, True])
def test_a_permit_of_a_process_that_was_killed_ends_with_its_lease(api: Caller, begun: bool) -> None:
    """No client knows its address, so that nothing is kept for one."""
    issued = permit_create(account=api.account, new=NewFile(None, "a", 1000), actor="test", once=True)
    lease = timedelta(seconds=settings.ENV.cdn_lease_seconds)
    if begun:
        grant = uploads.upload_begin(issued.token, length=None, offset=None, owner="killed", once=True)
        uploads.upload_progress(grant, 10)
    assert Permit.objects.get().expires_at <= timezone.now() + lease
    assert permits_expire() == 0
    Permit.objects.update(expires_at=F("expires_at") - lease)
    assert permits_expire() == 1
    require_nothing_kept(api)


def test_an_upload_that_lasts_longer_than_a_lease_goes_on(api: Caller) -> None:
    issued = permit_create(account=api.account, new=NewFile(None, "a", 1000), actor="test", once=True)
    grant = uploads.upload_begin(issued.token, length=None, offset=None, owner="slow", once=True)
    real = timezone.now
    for seconds in range(20, 200, 20):
        with patch("django.utils.timezone.now", lambda later=seconds: real() + timedelta(seconds=later)):
            uploads.upload_progress(grant, 10)
            assert permits_expire() == 0
    late = real() + timedelta(seconds=settings.ENV.cdn_upload_seconds + 1)
    with patch("django.utils.timezone.now", lambda: late):
        assert permits_expire() == 1


def test_a_token_of_uploads_is_none_elsewhere_and_no_other_credential_uploads(api: Caller) -> None:
    token = token_of(api)
    for path in ("/cdn/files", "/workspace", "/cdn/usage"):
        answer = api.client.get(path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401, path
    body, kind = form(b"one")
    answer: Any = posted("", body, kind, X_Client_ID=api.client_id, X_Client_Secret=api.secret)
    assert (answer.status, answer.json()["code"]) == (401, "unauthorized")
    assert File.objects.count() == 0
