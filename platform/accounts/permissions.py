"""Which scopes may call a view, and with which kind of credential."""

from __future__ import annotations

from typing import Any, cast

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from accounts.actors import Actor
from accounts.scopes import Scope
from common.errors import Forbidden, Unauthorized

RESOURCE_SCOPES = frozenset({Scope.ACCOUNT, Scope.NAMESPACE, Scope.WORKSPACE})
NAMESPACE_SCOPES = frozenset({Scope.ACCOUNT, Scope.NAMESPACE})
ACCOUNT_ONLY = frozenset({Scope.ACCOUNT})
OTHER_NAMESPACE = "This credential is bound to another namespace."


def require_scope(actor: Actor | None, scopes: frozenset[Scope], *, tokens: bool = True) -> Actor:
    """Return the actor if it is allowed. Raise Unauthorized (no actor), Forbidden (wrong scope or kind of
    credential).
    """
    if actor is None:
        raise Unauthorized
    if actor.scope not in scopes:
        raise Forbidden(f"A {actor.scope}-scope credential cannot call this.")
    if not tokens and actor.via == "token":
        raise Forbidden("This needs client credentials; an access token is not enough.")
    return actor


def require_named_namespace(actor: Actor, slug: str | None) -> None:
    """Raise Forbidden if a request names another namespace than the one that its credential is bound to."""
    if slug is not None and actor.scope is Scope.NAMESPACE and slug != actor.namespace_slug:
        raise Forbidden(OTHER_NAMESPACE)


class ScopePermission(BasePermission):
    """The permission by `scopes` (or `action_scopes[action]`) and `allow_tokens` of the view; default: the resource
    scopes.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        tokens = getattr(view, "allow_tokens", True)
        require_scope(cast(Actor | None, request.user), self.allowed_scopes(view), tokens=tokens)
        return True

    @staticmethod
    def allowed_scopes(view: Any) -> frozenset[Scope]:
        """Return the scopes of which the view's action needs one; the OpenAPI document shows them, too."""
        default: frozenset[Scope] = getattr(view, "scopes", RESOURCE_SCOPES)
        by_action: dict[str, frozenset[Scope]] = getattr(view, "action_scopes", {})
        return by_action.get(getattr(view, "action", ""), default)
