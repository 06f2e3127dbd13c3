"""The routes of the CDN, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from accounts.permissions import ACCOUNT_ONLY, NAMESPACE_SCOPES
from accounts.scopes import Scope
from cdn.models import File
from namespaces.models import Namespace
from tests.callers import Caller
from tests.cdn.rows import make_file
from tests.route import Route

FILE = "cdn/files/{file_id}"
ROUTES = [
    Route("POST", "cdn/token", scopes=NAMESPACE_SCOPES, reads=True),
    Route("GET", "cdn/tags", scopes=NAMESPACE_SCOPES),
    Route("GET", "cdn/stats", scopes=NAMESPACE_SCOPES),
    Route("GET", "cdn/files", scopes=NAMESPACE_SCOPES),
    Route("GET", FILE, scopes=NAMESPACE_SCOPES),
    Route("DELETE", FILE, scopes=NAMESPACE_SCOPES),
    Route("POST", f"{FILE}/restore", scopes=NAMESPACE_SCOPES),
    Route("DELETE", "cdn/trash", scopes=NAMESPACE_SCOPES),
    Route("GET", "cdn/quota-defaults", scopes=NAMESPACE_SCOPES),
    Route("PUT", "cdn/quota-defaults", scopes=ACCOUNT_ONLY, reads=True),
    Route("GET", "cdn/namespaces", scopes=NAMESPACE_SCOPES),
    Route("PUT", "cdn/namespaces/quota", scopes=ACCOUNT_ONLY, reads=True),
    Route("GET", "cdn/policy", scopes=NAMESPACE_SCOPES),
    Route("GET", "cdn/usage", scopes=NAMESPACE_SCOPES | {Scope.BILLING}),
]
# The address, or an upload token, is the credential (tests/cdn/test_uploads.py, tests/cdn/test_form_uploads.py).
NOT_WALKED = {"cdn/uploads/{token}", "cdn/api", "cdn/api/limits"}
DOCUMENTED = """
GET /cdn/quota-defaults
PUT /cdn/quota-defaults
GET /cdn/namespaces
PUT /cdn/namespaces/quota
GET /cdn/policy
GET /cdn/usage
"""


def make_rows(owner: Caller) -> dict[str, File]:
    """A file of the caller's default namespace."""
    return {"file_id": make_file(owner.account, Namespace.objects.get(account=owner.account, is_default=True))}
