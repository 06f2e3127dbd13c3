"""The routes of code assistance, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from django.db.models import Model

from accounts.permissions import NAMESPACE_SCOPES
from assist.services import api_key_create
from namespaces.models import Namespace
from tests.callers import Caller
from tests.route import Route

ROUTES = [
    Route("GET", "api-keys", scopes=NAMESPACE_SCOPES, tokens=False),
    Route("POST", "api-keys", scopes=NAMESPACE_SCOPES, tokens=False, reads=True),
    Route("DELETE", "api-keys/{api_key_id}", scopes=NAMESPACE_SCOPES, tokens=False),
]
# By API keys, and with errors of their own form: tests/assist/test_errors.py.
NOT_WALKED = {"v1/blurs/generate", "v1/blurs/debug", "v1/blurs/optimize", "^v1/blurs(?:/.*)?$"}
DOCUMENTED = """
POST /v1/blurs/generate
POST /v1/blurs/debug
POST /v1/blurs/optimize
"""


def make_rows(owner: Caller) -> dict[str, Model]:
    """A key of the caller's default namespace."""
    default = Namespace.objects.get(account=owner.account, is_default=True)
    made = api_key_create(account=owner.account, name="of the walk", namespace=default, actor="test")
    return {"api_key_id": made.api_key}
