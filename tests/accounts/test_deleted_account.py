"""An account that staff delete while a request of it is under way."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import Credential
from accounts.services import account_delete
from namespaces.models import Namespace
from tests.between_queries import done_before
from tests.callers import Caller
from tests.described import DescribedClient
from tests.world import assert_error

# Foreign keys are checked at the commit.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/namespaces", {"name": "Other"}),
        ("/namespaces/ensure", {"slug": "other"}),
        ("/credits/defaults", {"level": "namespace", "service": "ai", "quotaLimit": 5}),
        ("/workspace", {}),
    ],
)
def test_what_locks_the_account_is_unauthorized(api: Caller, path: str, body: Any) -> None:
    api.client = DescribedClient()
    with done_before('UPDATE "accounts_credential"', lambda: account_delete(api.account)):
        answer = api.post(path, body)
    assert_error(answer, 401, "MISSING_USER_ID" if path == "/workspace" else "unauthorized")
    assert not Namespace.objects.exists()


def test_a_credential_is_not_made(api: Caller) -> None:
    api.client = DescribedClient()
    with done_before('INSERT INTO "accounts_credential"', lambda: account_delete(api.account)):
        answer = api.post("/credentials", {"name": "late", "scope": "account"})
    assert_error(answer, 404, "not_found")
    assert not Credential.objects.exists()


def test_the_stop_of_all_workspaces_has_no_entry(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account)
    with done_before('INSERT INTO "namespaces_namespaceactivity"', lambda: account_delete(api.account)):
        assert_error(api.post(f"/namespaces/{namespace.pk}/stop-workspaces"), 404, "not_found")
