"""The routes of credits, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from accounts.scopes import Scope
from namespaces.models import Namespace
from tests.callers import Caller
from tests.route import Route

WRITERS = frozenset({Scope.ACCOUNT, Scope.BILLING})
READERS = WRITERS | {Scope.NAMESPACE}
ROUTES = [
    Route("POST", "credits/namespace-quota", scopes=WRITERS, reads=True),
    Route("POST", "credits/reset-quota", scopes=WRITERS, reads=True),
    Route("GET", "credits/namespaces", scopes=READERS),
    Route("GET", "credits/namespaces/{namespace}", scopes=READERS),
    Route("GET", "credits/defaults", scopes=WRITERS),
    Route("POST", "credits/defaults", scopes=WRITERS, reads=True),
    Route("DELETE", "credits/defaults", scopes=WRITERS, reads=True),
    Route("GET", "credits/defaults/all", scopes=WRITERS),
    Route("POST", "credits/defaults/toggle-auto-apply", scopes=WRITERS, reads=True),
    Route("GET", "namespaces/{namespace_id}/usage", scopes=READERS),
]
DOCUMENTED = """
POST /credits/namespace-quota
POST /credits/reset-quota
GET /credits/namespaces
GET /credits/namespaces/:namespace
POST /credits/defaults
GET /credits/defaults
GET /credits/defaults/all
DELETE /credits/defaults
GET /namespaces/:id/usage
"""


def make_rows(owner: Caller) -> dict[str, Namespace]:
    """The caller's default namespace."""
    return {"namespace": Namespace.objects.get(account=owner.account, is_default=True)}
