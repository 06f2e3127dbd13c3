"""Authentication of senders: by a send token, and by nothing else that a request carries."""

from __future__ import annotations

from typing import cast

from django.conf import settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from common.caller_places import remember_account
from common.errors import Unauthorized
from common.request_counts import RateState, is_window_empty, restore_window
from common.throttling import RedisThrottle
from common.wrong_secrets import count_wrong_secret
from notifications.models import SendToken
from notifications.sends.queue import times_of_sends
from notifications.tokens import SendTokenHolder, token_holder

UNKNOWN = "The send token is missing, unknown or revoked."


class SendTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer snd_…`."""

    def authenticate(self, request: Request) -> tuple[SendTokenHolder, None] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        holder = token_holder(token.strip()) if scheme.lower() == "bearer" else None
        if holder is None:
            if token:
                count_wrong_secret(request._request)
            return None
        remember_account(request._request, holder.account.pk)
        return holder, None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="notifications"'


class SendTokenPermission(BasePermission):
    """A permission that raises Unauthorized for a request without a holder."""

    def has_permission(self, request: Request, view: object) -> bool:
        if not isinstance(request.user, SendTokenHolder):
            raise Unauthorized(UNKNOWN)
        return True


class SendThrottle(RedisThrottle):
    """The limit of requests in any minute with one token. Closed while Redis is away: messages reach other people.
    Requests that a restarted Redis has forgotten are counted by the rows of sends.
    """

    scope = "notifications-send"
    window_seconds = 60
    fail_open = False
    token: SendToken

    def identity(self, request: Request, view: object) -> str:
        self.token = cast(SendTokenHolder, request.user).token
        return f"token:{self.token.token_hash}"

    def count(self, limit: int) -> RateState:
        if is_window_empty(self.name) and (sent := times_of_sends(self.token, self.window_seconds)):
            restore_window(self.name, sent, window_seconds=self.window_seconds)
        return super().count(limit)

    def plain_limit(self) -> int:
        return int(settings.ENV.sends_per_minute)


class SendRequest(Request):
    """The type of a request that passed SendTokenPermission."""

    user: SendTokenHolder  # type: ignore[assignment]
