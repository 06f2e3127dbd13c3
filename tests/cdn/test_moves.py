"""What becomes of files, permits, counters and holds when their namespace or account is deleted."""

from __future__ import annotations

import pytest
from django.db.models import ProtectedError

from accounts.services import account_delete
from cdn.models import File, NamespaceQuota, Pool, Template
from cdn.services.counter_check import account_check
from credits.models import Balance
from namespaces.models import Namespace
from tests.callers import Caller
from tests.cdn.rows import make_file, make_permit, publish, upload

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("destroy", [False, True])
def test_files_of_a_namespace_that_is_deleted_move_to_the_default_one(api: Caller, destroy: bool) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    api.put("/cdn/namespaces/quota", {"namespace": "other", "cdn_max_bytes": 10**10})
    file, issued = make_file(api.account, other), make_permit(api.account, other, size=10**9)
    trashed = make_file(api.account, other)
    api.delete(f"/cdn/files/{trashed.pk}")
    make_file(api.account)
    answer = api.delete("/namespaces/other", {"deleteWorkspaces": destroy})
    assert answer.status_code == 200
    assert account_check(api.account.pk) == []
    assert not Pool.objects.filter(pk=other.pk).exists()
    assert not NamespaceQuota.objects.exists()
    assert api.get(f"/cdn/files/{file.pk}").json()["file"]["namespace"] == "default"
    usage = api.get("/cdn/usage?namespace=default").json()["data"]
    assert (usage["active"]["files"], usage["trash"]["files"], usage["reserved"]["files"]) == (1, 1, 1)
    assert usage["ingest"]["bytes"] == 200
    # The hold is settled where it was made.
    assert publish(upload(issued)).status == "active"
    balance = Balance.objects.get(namespace_id=other.pk, service="cdn")
    assert (balance.held, float(balance.used)) == (0, pytest.approx(0.10000002))
    assert account_check(api.account.pk) == []


def test_an_account_with_files_is_not_deleted(api: Caller) -> None:
    make_file(api.account)
    with pytest.raises(ProtectedError):
        account_delete(api.account)
    File.objects.all().delete()
    Template.objects.create(account=api.account)
    account_delete(api.account)
    assert not Pool.objects.exists()
