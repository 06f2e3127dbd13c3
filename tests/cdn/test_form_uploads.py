"""Uploads by token, as existing clients do them: the token, the form, what is kept of what breaks off."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any
from unittest.mock import patch

import pytest
from django.core import signing

from accounts.models import Credential
from accounts.scopes import Scope
from accounts.services import account_switch
from cdn import hooks, upload_tokens
from cdn.form_uploads.form import HELD_BYTES
from cdn.media.pipeline import file_process
from cdn.models import File, Pool
from common import wrong_secrets
from common.attempts import AttemptLimits, FailureLimit
from namespaces.models import Namespace
from tests.callers import Caller
from tests.cdn import hostile
from tests.cdn.edge_files import files_clear
from tests.cdn.forms import form, posted, token_of, uploaded
from tests.cdn.received import policy_set
from tests.cdn.uploading import Answer, sent

pytestmark = pytest.mark.django_db(transaction=True)
LARGE = os.urandom(3 << 20)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """The worker looks at each file once its upload is committed."""
    files_clear()
    with patch.object(hooks.file_received, "_handlers", [file_process]):
        yield
    files_clear()


def test_a_token_is_for_a_minute_and_says_where_files_go(api: Caller) -> None:
    made = api.post("/cdn/token", {"namespace": "default"})
    body = made.json()
    token = body.pop("token")
    assert made.status_code == 201
    assert body == {
        "success": True, "scope": "user", "permissions": ["upload"], "namespace": "default", "expiresIn": "1m",
        "apiUrl": "http://cdn.localhost:8000/api",
    }  # fmt: skip
    assert len(token) < 1000
    assert api.post("/cdn/token", {}).json()["namespace"] is None
    assert File.objects.count() == 0


@pytest.mark.parametrize("data", [b"", b"one", "Gr\u00fc\u00dfe".encode(), LARGE])
@pytest.mark.parametrize("size", [1 << 20, 1000])
def test_a_file_is_received_looked_at_and_published(api: Caller, data: bytes, size: int) -> None:
    token = token_of(api, namespace="default", tag="first", tags=["second", "first"], metadata={"a": 1})
    answer = uploaded(token, data, "gr\u00fc\u00dfe.txt", size=size)
    file = File.objects.get()
    kind = "application/octet-stream" if data == LARGE else "text/plain"
    assert (answer.status, answer.json()) == (201, {
        "success": True, "file_id": file.pk, "url": answer.json()["url"], "filename": "gr\u00fc\u00dfe.txt",
        "size": len(data), "mime": kind, "variants": [], "recorded": True,
    })  # fmt: skip
    assert sha256(data).hexdigest()[:32] in answer.json()["url"]
    assert (file.sha256, file.tags, file.metadata) == (sha256(data).hexdigest(), ["first", "second"], {"a": 1})
    shown = api.get(f"/cdn/files/{file.pk}").json()
    assert shown["file"] == shown["data"]
    assert (shown["data"]["cdn_url"], shown["data"]["mime_type"]) == (answer.json()["url"], kind)
    assert (shown["data"]["tag"], shown["data"]["is_deleted"]) == ("first", False)
    assert shown["data"]["namespace"] == "default"
    pool = Pool.objects.get(owner=api.account.pk)
    assert (pool.stored_bytes, pool.reserved_bytes, pool.open_permits) == (len(data), 0, 0)


def test_a_token_serves_for_more_than_one_file(api: Caller) -> None:
    token = token_of(api)
    assert [uploaded(token, data).status for data in (b"one", b"two", b"one")] == [201] * 3
    assert File.objects.filter(status="active", namespace=None).count() == 3


def test_variants_are_made_of_pictures(api: Caller) -> None:
    token = token_of(api, variants={"small": {"width": 40}})
    body = uploaded(token, hostile.picture(".png", 80, 40), "a.png").json()
    assert body["mime"] == "image/png"
    assert [(each["name"], each["width"], each["height"]) for each in body["variants"]] == [("small", 40, 20)]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_other_fields_and_ways_to_write_a_form_do_not_matter(api: Caller, size: int) -> None:
    token = token_of(api)
    data = b"\r\n--b\r\n\r\n--bo\r\n" * 5
    body = (
        b'--bound\r\nContent-Disposition: form-data; name="tag"\r\n\r\nno\r\n\r\nno\r\n'
        b"--bound\r\ncontent-type: text/plain\r\n"
        b'CONTENT-DISPOSITION: form-data; filename="x y.txt"; name="file"\r\n\r\n'
        + data
        + b'\r\n--bound\r\nContent-Disposition: form-data; name="after"\r\n\r\nno\r\n--bound--\r\n'
    )
    answer = posted(token, body, "multipart/form-data; boundary=bound", size=size)
    assert answer.status == 201, answer
    file = File.objects.get()
    assert (file.filename, file.size, file.sha256) == ("x y.txt", len(data), sha256(data).hexdigest())


@pytest.mark.parametrize("size", [100, 2 << 20])
def test_the_permit_is_for_the_size_that_comes(api: Caller, size: int) -> None:
    """Exactly for what is held first; of more the last bytes of the form may be two."""
    token, slack = token_of(api, namespace="default"), 0 if size < HELD_BYTES else 2
    api.put("/cdn/namespaces/quota", {"namespace": "default", "cdn_max_bytes": size + slack})
    refused = uploaded(token, bytes(size + slack + 1))
    assert (refused.status, refused.json()["code"]) == (402, "cdn_quota_exceeded")
    assert File.objects.count() == 0
    assert uploaded(token, bytes(size)).status == 201
    assert Pool.objects.get(owner=api.account.pk).stored_bytes == size


def test_the_policy_and_credits_hold_as_everywhere(api: Caller) -> None:
    token = token_of(api, namespace="default")
    policy_set(api.account, allowedKinds=["image"])
    refused = uploaded(token, b"text", "a.txt")
    assert (refused.status, refused.json()["code"]) == (400, "cdn_policy_violation")
    assert File.objects.count() == 0
    # Nothing is claimed of the type: the bytes say it.
    refused = uploaded(token, b"text", "a")
    assert (refused.status, refused.json()["code"]) == (400, "cdn_policy_violation")
    file = File.objects.get()
    assert (file.status, file.error["details"]["rule"]) == ("rejected", "allowedKinds")
    policy_set(api.account, maxFileBytes={"document": 3, "other": 3})
    assert uploaded(token, b"four").json()["code"] == "cdn_policy_violation"


@pytest.mark.parametrize("sent_bytes", [10, 300_000, len(LARGE) + 50])
def test_what_breaks_off_is_not_kept(api: Caller, sent_bytes: int) -> None:
    token = token_of(api)
    body, kind = form(LARGE)
    for more in ({"leaves": True}, {}):
        answer = posted(token, body[:sent_bytes], kind, **{"length": len(body), **more})
        assert answer.status in (0, 400), answer
        if answer.status and not more:
            assert answer.json()["code"] == "invalid_json"
    assert not File.objects.exclude(status="rejected").exists()
    pool = Pool.objects.filter(owner=api.account.pk).first()
    assert pool is None or (pool.reserved_bytes, pool.open_permits, pool.stored_bytes) == (0, 0, 0)
    assert uploaded(token, b"again").status == 201


@pytest.mark.parametrize(
    ("body", "kind", "status", "named"),
    [
        (b"{}", "application/json", 415, None),
        (b"x", "multipart/form-data", 400, "Content-Type"),
        (b"x", "multipart/form-data; boundary=", 400, "Content-Type"),
        (b"--b--\r\n", "multipart/form-data; boundary=b", 400, "file"),
        (form(b"x", field="other"), "", 400, "file"),
        (form(b"x", "n" * 256), "", 400, "file"),
        (form(b"x", ""), "", 400, "file"),
        (b"--b\r\n" + b"x" * 100_000, "multipart/form-data; boundary=b", 400, None),
        (b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"x" * 100_000, "multipart/form-data; boundary=b",
         400, "file"),
        (b'--b\r\nContent-Disposition: form-data; name="file"; filename="\xff"\r\n\r\nx\r\n--b--',
         "multipart/form-data; boundary=b", 400, "file"),
    ],
)  # fmt: skip
def test_what_is_no_form_with_a_file_is_refused(
    api: Caller, body: Any, kind: str, status: int, named: str | None
) -> None:
    data, kind = body if isinstance(body, tuple) else (body, kind)
    answer = posted(token_of(api), data, kind)
    assert answer.status == status, answer
    assert named is None or set(answer.json()["details"]) == {named}, answer
    assert File.objects.count() == 0


def test_without_a_valid_token_nothing_is_taken(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    good = token_of(api)
    monkeypatch.setattr(upload_tokens, "SECONDS", -1)
    expired = token_of(api)
    access = api.post("/tokens", {"scope": "account"}).json()["token"]
    forged = signing.dumps({"c": "x", "x": 1 << 40}, salt="cdn.upload-token", key="another")
    for token in ("", "x", expired, access, forged, good[:-1], "x" * 100_000):
        for answer in (uploaded(token, b"one"), limits(token)):
            assert (answer.status, answer.json()["code"]) == (401, "unauthorized"), token
    assert File.objects.count() == 0


def test_tokens_that_nobody_signed_count_as_wrong_secrets_and_expired_ones_do_not(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = FailureLimit(AttemptLimits(f"secret-{os.urandom(4).hex()}", 3, 3, 60))
    monkeypatch.setattr(wrong_secrets, "_failures", lambda: failures)
    monkeypatch.setattr(wrong_secrets, "REFUSAL_SECONDS", (0.0, 0.0))
    good = token_of(api)
    monkeypatch.setattr(upload_tokens, "SECONDS", -1)
    expired = token_of(api)
    assert [uploaded(token, b"one").status for token in ("", expired) * 4] == [401] * 8
    forged = signing.dumps({"c": "x", "x": 1 << 40}, salt="cdn.upload-token", key="another")
    assert [uploaded(token, b"one").status for token in ("x", forged, "x" * 100_000)] == [401] * 3
    for refused in (uploaded(good[:-1], b"one"), limits("x")):
        assert (refused.status, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) >= 1
    # A right one from the same address goes on, and one that has expired is 401.
    assert (uploaded(good, b"one").status, uploaded(expired, b"one").status) == (201, 401)


def limits(token: str) -> Answer:
    return sent("GET", "", path="/cdn/api/limits", Authorization=f"Bearer {token}")


def test_a_token_ends_with_its_credential_its_namespace_and_its_account(api: Caller) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    tokens = [token_of(api, namespace="other"), token_of(api)]
    assert [limits(token).status for token in tokens] == [200, 200]
    Namespace.objects.filter(pk=other.pk).update(deleted_at="2026-01-01T00:00:00Z")
    assert [limits(token).status for token in tokens] == [401, 200]
    account_switch(api.account, is_active=False)
    assert limits(tokens[1]).status == 401
    account_switch(api.account, is_active=True)
    credential = Credential.objects.get(client_id=api.client_id)
    Credential.objects.filter(pk=credential.pk).update(epoch=credential.epoch + 1)
    assert limits(tokens[1]).status == 401


def test_limits_are_those_of_where_the_files_go(api: Caller) -> None:
    policy = {"maxFileBytes": {"image": 9, "video": 99}, "maxFiles": 7, "maxTotalBytes": 500}
    api.put("/cdn/namespaces/quota", {"namespace": "default", "cdn_max_bytes": 1000, "policy": policy})
    assert limits(token_of(api, namespace="default")).json() == {
        "success": True, "limits": {"image": 9, "video": 99}, "totalLimit": 500, "maxFiles": 7,
    }  # fmt: skip
    assert limits(token_of(api)).json()["limits"] == {}


def test_a_credential_of_a_namespace_uploads_into_it_alone(api: Caller, scoped: Callable[..., Caller]) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    inside = scoped(api, Scope.NAMESPACE, namespace_id=other.pk, namespace_slug="other")
    assert inside.post("/cdn/token", {"namespace": "default"}).status_code == 403
    made = inside.post("/cdn/token", {}).json()
    assert made["namespace"] == "other"
    assert uploaded(made["token"], b"one").status == 201
    assert File.objects.get().namespace == other


@pytest.mark.parametrize("given", [("filename",), ("size",), ("contentType",), ("filename", "size")])
def test_a_permit_needs_all_three_fields_of_a_file(api: Caller, given: Sequence[str]) -> None:
    every = {"filename": "a", "size": 1, "contentType": ""}
    refused = api.post("/cdn/token", {name: every[name] for name in given})
    assert refused.status_code == 400
    assert set(refused.json()["details"]) == set(every) - set(given)


def test_an_upload_token_is_refused_while_its_credits_are_used_up_or_its_namespace_is_suspended(api: Caller) -> None:
    Namespace.objects.filter(account=api.account, is_default=True).update(status="suspended")
    assert api.post("/cdn/token", {"namespace": "default"}).json()["code"] == "namespace_suspended"
