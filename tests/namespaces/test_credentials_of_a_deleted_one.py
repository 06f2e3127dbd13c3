"""What a credential still reads whose namespace is deleted: nothing of the account."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounts.scopes import Scope
from namespaces.models import Namespace
from tests.callers import Caller
from tests.route import Route
from tests.routes import ROUTES
from tests.world import assert_error

pytestmark = pytest.mark.django_db
# Lists, which are empty then, and what is the same for every account.
EMPTY = {
    "sandbox": "sandboxes", "workspace": "workspaces", "workspace/usage": "usage", "workspace/activity": "history",
    "api-keys": "api_keys", "credits/namespaces": "data", "namespaces": "data", "notifications/tokens": "tokens",
    "pages": "pages", "snapshots": "snapshots", "webhooks": "webhooks",
}  # fmt: skip
PUBLIC = {"workspace/images", "webhooks/events", "notifications/web-push-key"}
QUERIES = {"workspace/estimate": "?cpu=1&ram_mb=512&disk_mb=1024"}
LISTED = [
    route for route in ROUTES if route.method == "GET" and not route.is_addressed and Scope.NAMESPACE in route.scopes
]


@pytest.fixture
def left(api: Caller, scoped: Callable[..., Caller]) -> Any:
    made = Namespace.objects.create(account=api.account, name="Gone", slug="gone")
    caller = scoped(api, Scope.NAMESPACE, namespace_id=made.pk, namespace_slug="gone")
    assert caller.get("/workspace/quota").status_code == 200
    assert api.delete("/namespaces/gone").status_code == 200
    return caller


@pytest.mark.parametrize("route", LISTED, ids=str)
def test_every_route_that_a_credential_of_a_namespace_may_read(left: Caller, route: Route) -> None:
    answer = left.get(route.at() + QUERIES.get(route.path, ""))
    if route.path in PUBLIC:
        assert answer.status_code == 200
    elif route.path in EMPTY:
        assert not answer.json()[EMPTY[route.path]]
    else:
        assert_error(answer, 404, "not_found")
        assert answer.json()["message"] == "The namespace of this credential no longer exists."
