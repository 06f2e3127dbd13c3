"""Permits, files, the trash: what each route answers, and the counters after it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from cdn.errors import FileNotKept
from cdn.models import File, Permit
from cdn.services.counter_check import account_check
from cdn.services.rows import lock_file
from namespaces.models import Namespace
from tests.between_queries import done_after
from tests.callers import Caller
from tests.cdn.rows import make_file, make_permit, publish, upload, variant_facts
from tests.world import assert_error

pytestmark = pytest.mark.django_db
NEW = {"filename": "cat.png", "size": 1000, "contentType": "image/png"}


@pytest.fixture(autouse=True)
def counters_agree(api: Caller) -> Any:
    """After each test."""
    yield
    assert account_check(api.account.pk) == []


def usage(api: Caller, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/cdn/usage{query}").json()["data"]
    return found


def test_a_permit_reserves_its_bytes(api: Caller) -> None:
    made = api.post("/cdn/token", NEW)
    assert made.status_code == 201
    body = made.json()
    assert body["uploadUrl"].endswith(f"/cdn/uploads/{body['token']}")
    assert usage(api)["reserved"] == {"bytes": 1000, "files": 1}
    file = api.get(f"/cdn/files/{body['fileId']}").json()["file"]
    assert (file["status"], file["namespace"], file["kind"], file["url"]) == ("uploading", None, "image", None)
    assert file["content_type"] is None


def test_the_token_is_stored_as_a_hash(api: Caller) -> None:
    token = api.post("/cdn/token", NEW).json()["token"]
    assert token not in str(Permit.objects.values().get())


def test_variants_reserve_room(api: Caller) -> None:
    api.post("/cdn/token", {**NEW, "variants": {"thumb": {"width": 10, "height": 20}, "web": {"width": 5000}}})
    assert usage(api)["reserved"]["bytes"] == 1000 + (65536 + 800) + (65536 + 2000)


def test_published_bytes_count_as_stored_and_for_the_month(api: Caller) -> None:
    file = publish(upload(make_permit(api.account, size=100)), variant_facts("thumb", 30))
    found = usage(api)
    assert found["active"] == {"bytes": 130, "files": 1}
    assert found["ingest"] == {"bytes": 130, "files": 1}
    assert found["reserved"] == {"bytes": 0, "files": 0}
    shown = api.get(f"/cdn/files/{file.pk}").json()["file"]
    assert shown["status"] == "active"
    assert [each["name"] for each in shown["variants"]] == ["thumb"]
    assert file.pk in shown["url"]


def test_the_trash_counts_as_stored_and_the_month_is_not_given_back(api: Caller) -> None:
    file = make_file(api.account)
    assert api.delete(f"/cdn/files/{file.pk}").json()["success"]
    found = usage(api)
    assert (found["active"]["bytes"], found["trash"]["bytes"], found["ingest"]["bytes"]) == (0, 100, 100)
    assert api.get("/cdn/files").json()["data"]["files"] == []
    listed = api.get("/cdn/files?status=trashed").json()["data"]
    assert [each["id"] for each in listed["files"]] == [file.pk]
    assert listed["pagination"]["total"] == 1
    assert api.delete("/cdn/trash").json()["deleted"] == 1
    found = usage(api)
    assert (found["trash"]["bytes"], found["ingest"]["bytes"]) == (0, 100)
    assert_error(api.get(f"/cdn/files/{file.pk}"), 404, "not_found")


def test_a_file_comes_back_from_the_trash(api: Caller) -> None:
    file = make_file(api.account)
    for _ in range(2):
        assert api.delete(f"/cdn/files/{file.pk}").status_code == 200
    for _ in range(2):
        assert api.post(f"/cdn/files/{file.pk}/restore").json()["file"]["status"] == "active"
    assert usage(api)["active"] == {"bytes": 100, "files": 1}


def test_a_restored_file_is_shown_though_its_namespace_is_deleted_right_after(api: Caller) -> None:
    """What is done is not answered as not found."""
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    file = make_file(api.account, other)
    assert api.delete(f"/cdn/files/{file.pk}").status_code == 200
    caller = Caller(Client(), api.account, api.client_id, api.secret)

    def delete_namespace() -> None:
        assert caller.delete(f"/namespaces/{other.pk}").status_code == 200

    with done_after('UPDATE "cdn_file"', delete_namespace):
        answer = api.post(f"/cdn/files/{file.pk}/restore")
    assert (answer.status_code, answer.json().get("file", {}).get("status")) == (200, "active")


def test_a_file_of_a_deleted_account_is_not_found_also_without_credentials() -> None:
    with pytest.raises(FileNotKept):
        lock_file("file_never", "acc_never")


def test_a_restore_without_room_is_refused(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    file = make_file(api.account, namespace)
    api.delete(f"/cdn/files/{file.pk}")
    api.put("/cdn/namespaces/quota", {"namespace": "default", "cdn_max_bytes": 99})
    refused = api.post(f"/cdn/files/{file.pk}/restore")
    assert_error(refused, 402, "cdn_quota_exceeded")
    assert refused.json()["message"].startswith("There is no room to restore the file")
    assert refused.json()["details"]["limit"] == 99
    assert File.objects.get(pk=file.pk).status == "trashed"


def test_an_upload_that_is_deleted_is_cancelled(api: Caller) -> None:
    issued = make_permit(api.account)
    assert api.delete(f"/cdn/files/{issued.file.pk}").status_code == 200
    shown = api.get(f"/cdn/files/{issued.file.pk}").json()["file"]
    assert (shown["status"], shown["error"]["code"]) == ("rejected", "cancelled")
    assert usage(api)["reserved"] == {"bytes": 0, "files": 0}
    assert_error(api.delete(f"/cdn/files/{issued.file.pk}"), 409, "invalid_state")
    assert_error(api.post(f"/cdn/files/{issued.file.pk}/restore"), 409, "invalid_state")


def test_no_room_is_refused_and_nothing_is_written(api: Caller) -> None:
    api.put("/cdn/namespaces/quota", {"namespace": "default", "cdn_max_bytes": 1500})
    assert api.post("/cdn/token", {**NEW, "namespace": "default"}).status_code == 201
    refused = api.post("/cdn/token", {**NEW, "namespace": "default"})
    assert_error(refused, 402, "cdn_quota_exceeded")
    assert refused.json()["details"] == {
        "limit": 1500,
        "used": 0,
        "reserved": 1000,
        "requested": 1000,
        "scope": "namespace",
        "name": "cdn_max_bytes",
    }
    assert File.objects.count() == Permit.objects.count() == 1


def test_zero_is_a_real_zero(api: Caller) -> None:
    for field in ("cdn_max_bytes", "cdn_monthly_bytes"):
        api.put("/cdn/namespaces/quota", {"namespace": "default", "cdn_max_bytes": None, "cdn_monthly_bytes": None})
        api.put("/cdn/namespaces/quota", {"namespace": "default", field: 0})
        refused = api.post("/cdn/token", {**NEW, "size": 1, "namespace": "default"})
        assert_error(refused, 402, "cdn_quota_exceeded")
        assert refused.json()["details"]["name"] == field


def test_what_is_larger_than_reserved_asks_for_the_rest(api: Caller) -> None:
    api.put("/cdn/namespaces/quota", {"namespace": "default", "cdn_max_bytes": 150})
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    fits = publish(upload(make_permit(api.account, namespace, size=50)), variant_facts("a", 60))
    assert (fits.status, fits.footprint) == ("active", 110)
    too_large = publish(upload(make_permit(api.account, namespace, size=30)), variant_facts("a", 20))
    assert (too_large.status, too_large.error["code"]) == ("rejected", "cdn_quota_exceeded")


def test_a_file_that_no_longer_fits_at_publication_is_rejected(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    file = upload(make_permit(api.account, namespace))
    api.put("/cdn/namespaces/quota", {"namespace": "default", "cdn_max_bytes": 99})
    rejected = publish(file)
    assert (rejected.status, rejected.error["code"]) == ("rejected", "cdn_quota_exceeded")
    assert usage(api, "?namespace=default")["reserved"] == {"bytes": 0, "files": 0}


def test_the_policy_is_checked_against_what_was_found(api: Caller) -> None:
    api.put("/cdn/namespaces/quota", {"namespace": "default", "policy": {"allowedKinds": ["image"]}})
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    file = upload(make_permit(api.account, namespace, content_type="image/png"))
    rejected = publish(file, kind="document", content_type="text/html", extension="html")
    assert rejected.error["code"] == "cdn_policy_violation"
    assert rejected.error["details"] == {"rule": "allowedKinds", "limit": ["image"], "actual": "document"}


def test_a_claim_outside_of_the_policy_is_refused(api: Caller) -> None:
    policy = {"allowedKinds": ["image"], "maxFileBytes": {"image": 999}, "maxVariants": 1}
    api.put("/cdn/namespaces/quota", {"namespace": "default", "policy": policy})
    asked = {**NEW, "namespace": "default"}
    video = api.post("/cdn/token", {**asked, "contentType": "video/mp4"})
    assert_error(video, 400, "cdn_policy_violation")
    large = api.post("/cdn/token", asked)
    assert large.json()["details"] == {"rule": "maxFileBytes", "limit": 999, "actual": 1000}
    many = api.post("/cdn/token", {**asked, "size": 9, "variants": {"a": {"width": 1}, "b": {"width": 1}}})
    assert many.json()["details"] == {"rule": "maxVariants", "limit": 1, "actual": 2}
    # A claim of nothing is looked at when the bytes are there.
    assert api.post("/cdn/token", {**asked, "size": 9, "contentType": ""}).status_code == 201


def test_files_are_found_by_one_of_their_tags(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    files = [
        make_file(api.account, namespace, tags=tags)
        for tags in (["a", "b"], ["b"], ["A"], ['x"y', "%", "\u00e4"], [], ["ab"])
    ]
    for tag, places in (("a", [0]), ("b", [1, 0]), ("A", [2]), ('x"y', [3]), ("%", [3]), ("\u00e4", [3]), ("c", [])):
        for query in ({"tag": tag}, {"tag": tag, "namespace": "default", "status": "active"}):
            data = api.get(f"/cdn/files?{urlencode(query)}").json()["data"]
            assert [each["id"] for each in data["files"]] == [files[place].pk for place in places], tag
            assert data["pagination"]["total"] == len(places)
    for tag in ("", "x" * 65, " a"):
        assert_error(api.get(f"/cdn/files?{urlencode({'tag': tag})}"), 400, "validation_error")


def test_tags_are_those_of_files_that_are_neither_rejected_nor_in_the_trash(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    make_file(api.account, namespace, tags=["b", "a"])
    make_file(api.account, namespace, tags=["b", "B"])
    make_file(api.account, tags=["personal"])
    make_permit(api.account, other, tags=["uploading"])
    for tags in (["trashed"], ["rejected"]):
        file = make_file(api.account, namespace, tags=tags) if tags == ["trashed"] else make_permit(
            api.account, namespace, tags=tags).file  # fmt: skip
        assert api.delete(f"/cdn/files/{file.pk}").status_code == 200
    wanted = {
        "": (None, ["B", "a", "b", "personal", "uploading"]),
        "?namespace=default": ("default", ["B", "a", "b"]),
        "?namespace=other": ("other", ["uploading"]),
        "?scope=personal": (None, ["personal"]),
    }
    for query, (slug, tags) in wanted.items():
        assert api.get(f"/cdn/tags{query}").json() == {"success": True, "data": {"namespace": slug, "tags": tags}}


def test_statistics_count_the_trash_in_the_total(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account, is_default=True)
    make_file(api.account, namespace, size=100)
    api.delete(f"/cdn/files/{make_file(api.account, namespace, size=20).pk}")
    make_file(api.account, size=3)
    make_permit(api.account, namespace, size=1000)

    def stats(query: str = "") -> Any:
        return api.get(f"/cdn/stats{query}").json()["data"]

    assert stats() == {
        "totalFiles": 3, "totalSize": 123, "activeFiles": 2, "activeSize": 103, "uploadedFiles": 3, "urlFiles": 0,
    }  # fmt: skip
    assert (stats("?namespace=default")["totalSize"], stats("?namespace=default")["activeSize"]) == (120, 100)
    assert stats("?scope=personal")["totalSize"] == 3
    assert_error(api.get("/cdn/stats?namespace=never"), 404, "not_found")


def test_a_file_has_the_names_that_existing_clients_read(api: Caller) -> None:
    file = make_file(api.account, tags=["one", "two"])
    shown = api.get(f"/cdn/files/{file.pk}").json()
    assert shown["data"] == shown["file"]
    names = ("cdn_url", "mime_type", "tag", "is_deleted")
    assert [shown["file"][name] for name in names] == [shown["file"]["url"], "application/octet-stream", "one", False]
    api.delete(f"/cdn/files/{file.pk}")
    listed = api.get("/cdn/files?status=trashed").json()["data"]["files"]
    assert [each["is_deleted"] for each in listed] == [True]
    restored = api.post(f"/cdn/files/{file.pk}/restore").json()
    assert restored["data"] == restored["file"]
    assert api.get(f"/cdn/files/{make_permit(api.account).file.pk}").json()["data"]["tag"] is None
