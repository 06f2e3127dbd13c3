"""Throttles for routes with a documented rate: exact counts in Redis, shared by all processes.

A subclass of `RedisThrottle` names its scope, limit and window; a view lists it in `throttle_classes`. `DayThrottle`
counts until the UTC day ends. A request beyond the limit gets 429 with Retry-After: `rate_limited`, or the class's own
`error`. The throttles of a view count in their order; one that refuses keeps those after it from counting.

A view that inherits `RateLimitMixin` gives requests back whose response has one of the throttle's `uncounted` statuses
(a failure that is not the caller's), and, with `headers = True`, shows X-RateLimit-Limit, -Remaining and -Reset in each
response from the throttle on, errors included.

While Redis does not answer, a throttle fails open by default: an outage of Redis must not take routes down whose own
work needs none. `fail_open = False` is for limits that protect money or other people (paid model calls, sending
notifications): those get 429 until Redis is back.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from dataclasses import replace
from typing import Any, ClassVar

from redis import RedisError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from common.errors import DomainError, RateLimited
from common.request_counts import RateState, count_request, uncount_request
from common.request_origin import request_origin

logger = logging.getLogger(__name__)

OUTAGE_RETRY_SECONDS = 5


class RedisThrottle(BaseThrottle):
    """`limit` requests in any `window_seconds`, for each account and `scope`."""

    scope: ClassVar[str]
    limit: ClassVar[int]
    window_seconds: ClassVar[int]
    headers: ClassVar[bool] = False
    fail_open: ClassVar[bool] = True
    # A 429 of the specification with a code of its own.
    error: ClassVar[type[DomainError]] = RateLimited
    # Statuses of responses that do not count; for views with RateLimitMixin.
    uncounted: ClassVar[frozenset[int]] = frozenset()

    state: RateState | None = None

    def identity(self, request: Request, view: Any) -> str:
        """Return the key whose requests are counted together: the actor's account, or the address of an anonymous
        client.
        """
        account = getattr(request.user, "account", None)
        if account is not None:
            return f"account:{account.pk}"
        return f"address:{request_origin(request._request).ip_address}"

    def limit_of(self, request: Request) -> int:
        """Return the limit for this request; override it for limits that depend on the plan."""
        return self.plain_limit()

    def plain_limit(self) -> int:
        """Return the limit without a request, which the OpenAPI document shows; override it for one that is a
        setting.
        """
        return self.limit

    def allow_request(self, request: Request, view: Any) -> bool:
        """Raise the class's `error` if the request is one too many."""
        self.name, self.member = self.window_name(self.identity(request, view)), secrets.token_hex(8)
        try:
            self.state = self.count(self.limit_of(request))
        except RedisError as exc:
            logger.warning("throttle %s: %s", self.scope, exc)
            if self.fail_open:
                return True
        else:
            request._request.throttles = [*_throttles(request), self]  # type: ignore[attr-defined]
            if self.state.accepted:
                return True
        raise self.error(headers={"Retry-After": str(math.ceil(self.wait()))})

    def window_name(self, identity: str) -> str:
        """Return the name of the window in which requests of `identity` are counted now."""
        return f"{self.scope}:{identity}"

    def count(self, limit: int) -> RateState:
        """Count one request. Raise redis.RedisError."""
        return count_request(self.name, limit=limit, window_seconds=self.window_seconds, member=self.member)

    def give_back(self) -> None:
        """Take the request out of the count. If Redis does not answer it stays counted."""
        if self.state is None or not self.state.accepted:
            return
        try:
            uncount_request(self.name, self.member)
        except RedisError as exc:
            logger.warning("throttle %s: %s", self.scope, exc)
        else:
            self.state = replace(self.state, remaining=self.state.remaining + 1)

    def wait(self) -> float:
        """Return seconds for Retry-After, at least one."""
        return math.ceil(max(self.state.reset_seconds, 1)) if self.state else OUTAGE_RETRY_SECONDS


class DayThrottle(RedisThrottle):
    """`limit` requests from 00:00 to 24:00 UTC, for each account and `scope`."""

    window_seconds = 86400

    def window_name(self, identity: str) -> str:
        return f"{super().window_name(identity)}:{int(time.time()) // 86400}"

    def count(self, limit: int) -> RateState:
        return replace(super().count(limit), reset_seconds=86400 - time.time() % 86400)


class RateLimitMixin:
    """A mixin for views of throttles with `uncounted` or `headers`. Not for asynchronous views: giving back waits for
    Redis.
    """

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        finished: Response = super().finalize_response(request, response, *args, **kwargs)  # type: ignore[misc]
        for throttle in _throttles(request):
            if finished.status_code in throttle.uncounted:
                throttle.give_back()
            if throttle.headers and throttle.state is not None:
                finished["X-RateLimit-Limit"] = str(throttle.state.limit)
                finished["X-RateLimit-Remaining"] = str(throttle.state.remaining)
                finished["X-RateLimit-Reset"] = str(math.ceil(time.time() + throttle.state.reset_seconds))
        return finished


def _throttles(request: Request) -> list[RedisThrottle]:
    """Return the throttles that have counted this request."""
    return getattr(request._request, "throttles", [])
