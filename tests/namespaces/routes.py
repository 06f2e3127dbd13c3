"""The routes of namespaces, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from accounts.permissions import ACCOUNT_ONLY, NAMESPACE_SCOPES
from namespaces.models import Namespace
from tests.callers import Caller
from tests.route import Route

N = "namespaces/{namespace_id}"
ROUTES = [
    Route("GET", "namespaces", scopes=NAMESPACE_SCOPES),
    Route("POST", "namespaces", scopes=ACCOUNT_ONLY, reads=True),
    Route("POST", "namespaces/ensure", scopes=ACCOUNT_ONLY, reads=True),
    Route("GET", N, scopes=NAMESPACE_SCOPES),
    Route("PUT", N, scopes=ACCOUNT_ONLY, reads=True),
    Route("DELETE", N, scopes=ACCOUNT_ONLY, reads=True),
    Route("POST", f"{N}/suspend", scopes=ACCOUNT_ONLY),
    Route("POST", f"{N}/activate", scopes=ACCOUNT_ONLY),
    Route("POST", f"{N}/stop-workspaces", scopes=NAMESPACE_SCOPES),
    Route("GET", f"{N}/activity", scopes=NAMESPACE_SCOPES),
]
DOCUMENTED = """
POST /namespaces
POST /namespaces/ensure
GET /namespaces
GET /namespaces/:identifier
PUT /namespaces/:id
DELETE /namespaces/:id
POST /namespaces/:id/suspend
POST /namespaces/:id/activate
POST /namespaces/:id/stop-workspaces
GET /namespaces/:id/activity
"""


def make_rows(owner: Caller) -> dict[str, Namespace]:
    """The caller's default namespace."""
    return {"namespace_id": Namespace.objects.get(account=owner.account, is_default=True)}
