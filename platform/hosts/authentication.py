"""Authentication of staff's programs: by a token of staff, and by nothing else that a request carries."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from common.errors import Forbidden, Unauthorized
from common.request_origin import request_origin
from common.wrong_secrets import count_wrong_secret
from staff.api_tokens import PREFIX, TokenHolder, find_holder
from staff.audit import StaffMember

READ, ACT = "hosts.read", "hosts.act"


class StaffAuthentication(BaseAuthentication):
    """`Authorization: Bearer stf_...`. Any other credential is refused without a look at it."""

    def authenticate(self, request: Request) -> tuple[TokenHolder, None] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip().startswith(PREFIX):
            holder = find_holder(token.strip())
            if holder is None:
                count_wrong_secret(request._request)
                return None
            return holder, None
        if token or "X-Client-ID" in request.headers:
            raise Forbidden("This route is for tokens of staff (manage.py staff_token).")
        return None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="staff"'


class StaffPermission(BasePermission):
    """The permission by `needs[action]` of the view."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not isinstance(request.user, TokenHolder):
            raise Unauthorized("The token of staff is missing, unknown or has expired.")
        needed = view.needs.get(view.action)  # None: a method that the route has not
        if needed and needed not in request.user.can:
            raise Forbidden(f"This needs a token that can {needed}, of a user who may do that in the admin.")
        return True


class StaffRequest(Request):
    """The type of a request that passed StaffPermission."""

    user: TokenHolder  # type: ignore[assignment]


def member_of(request: StaffRequest) -> StaffMember:
    """Return who acts, for an audit entry."""
    return StaffMember(request.user.user_id, request.user.name, request_origin(request._request))


class StaffScheme(OpenApiAuthenticationExtension):
    """A token of staff."""

    target_class = "hosts.authentication.StaffAuthentication"
    name = "staffToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A token of staff, `stf_...`."}
