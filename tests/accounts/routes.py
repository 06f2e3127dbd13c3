"""The routes of accounts, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from accounts.models import Credential
from accounts.scopes import Scope, ScopeBinding
from accounts.services import credential_issue
from tests.callers import Caller
from tests.route import ACCOUNT, Route

ROUTES = [
    Route("POST", "tokens", tokens=False, reads=True),
    Route("GET", "credentials", scopes=frozenset({ACCOUNT}), tokens=False),
    Route("POST", "credentials", scopes=frozenset({ACCOUNT}), tokens=False, reads=True),
    Route("DELETE", "credentials/{credential_id}", scopes=frozenset({ACCOUNT}), tokens=False),
    Route("POST", "credentials/{credential_id}/rotate", scopes=frozenset({ACCOUNT}), tokens=False),
]


def make_rows(owner: Caller) -> dict[str, Credential]:
    """Another credential of the account than the one that calls."""

    made = credential_issue(account=owner.account, name="another", scope=Scope.ACCOUNT, binding=ScopeBinding())
    return {"credential_id": made.credential}
