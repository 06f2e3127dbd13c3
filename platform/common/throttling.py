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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from redis import RedisError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from common.errors import DomainError, RateLimited
from common.redis import redis_client, redis_key
from common.request_origin import request_origin

logger = logging.getLogger(__name__)

OUTAGE_RETRY_SECONDS = 5

# A sorted set of the accepted requests of the last window, by the clock of Redis. Refused requests do not count.
_SLIDING = """
local now = redis.call('TIME')
local at = now[1] * 1000000 + now[2]
local window = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', at - window)
-- Of before the clock was set back: they would count for as long as it was.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%d', at), '+inf')
local used = redis.call('ZCARD', KEYS[1])
local accepted = 0
if used < tonumber(ARGV[1]) then
  redis.call('ZADD', KEYS[1], string.format('%d', at), ARGV[3])
  redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
  used, accepted = used + 1, 1
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local frees = window
if oldest[2] then frees = tonumber(oldest[2]) + window - at end
return {accepted, used, string.format('%d', frees)}
"""


@dataclass(frozen=True, slots=True)
class RateState:
    """The state of a limit after a request. `reset_seconds`: until the oldest counted request leaves the window."""

    accepted: bool
    limit: int
    remaining: int
    reset_seconds: float


def count_request(name: str, *, limit: int, window_seconds: int, member: str = "") -> RateState:
    """Count one request of a sliding window, atomically: of any number at once exactly `limit` are accepted.

    `member` names the request for `uncount_request`. Raises redis.RedisError.
    """
    arguments: list[Any] = [limit, window_seconds * 1_000_000, member or secrets.token_hex(8)]
    found: Any = redis_client().eval(_SLIDING, 1, redis_key(f"throttle:{name}"), *arguments)
    accepted, used, frees = bool(found[0]), int(found[1]), int(found[2])
    return RateState(accepted, limit, max(limit - used, 0), frees / 1_000_000)


def window_restore(name: str, members: Mapping[str, float], *, window_seconds: int) -> None:
    """Count requests that a restarted Redis has forgotten: `members` with their times in seconds since the epoch.

    Idempotent, so that any number of requests may do it at once, each before it is counted. Raises redis.RedisError.
    """
    key = redis_key(f"throttle:{name}")
    with redis_client().pipeline() as pipeline:
        pipeline.zadd(key, {member: int(at * 1_000_000) for member, at in members.items()})
        pipeline.pexpire(key, window_seconds * 1000)
        pipeline.execute()


def is_window_empty(name: str) -> bool:
    """Whether Redis knows of no request in the window. Raises redis.RedisError."""
    return not redis_client().exists(redis_key(f"throttle:{name}"))


def uncount_request(name: str, member: str) -> None:
    """Remove a counted request from its window. Raises redis.RedisError."""
    redis_client().zrem(redis_key(f"throttle:{name}"), member)


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
        """Whose requests are counted together: the actor's account, or the address of an anonymous client."""
        account = getattr(request.user, "account", None)
        if account is not None:
            return f"account:{account.pk}"
        return f"address:{request_origin(request._request).ip_address}"

    def limit_of(self, request: Request) -> int:
        """The limit for this request; override it for limits that depend on the plan."""
        return self.limit

    def allow_request(self, request: Request, view: Any) -> bool:
        """Raises the class's `error` where the request is one too many."""
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
        """The name of the window in which requests of `identity` are counted now."""
        return f"{self.scope}:{identity}"

    def count(self, limit: int) -> RateState:
        """Count one request. Raises redis.RedisError."""
        return count_request(self.name, limit=limit, window_seconds=self.window_seconds, member=self.member)

    def give_back(self) -> None:
        """The request does not count after all. Where Redis does not answer it stays counted."""
        if self.state is None or not self.state.accepted:
            return
        try:
            uncount_request(self.name, self.member)
        except RedisError as exc:
            logger.warning("throttle %s: %s", self.scope, exc)
        else:
            self.state = replace(self.state, remaining=self.state.remaining + 1)

    def wait(self) -> float:
        """Seconds for Retry-After, at least one."""
        return math.ceil(max(self.state.reset_seconds, 1)) if self.state else OUTAGE_RETRY_SECONDS


class DayThrottle(RedisThrottle):
    """`limit` requests from 00:00 to 24:00 UTC, for each account and `scope`."""

    window_seconds = 86400

    def window_name(self, identity: str) -> str:
        return f"{super().window_name(identity)}:{int(time.time()) // 86400}"

    def count(self, limit: int) -> RateState:
        return replace(super().count(limit), reset_seconds=86400 - time.time() % 86400)


class RateLimitMixin:
    """For views of throttles with `uncounted` or `headers`. Not for asynchronous views: giving back waits for Redis."""

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        finished = super().finalize_response(request, response, *args, **kwargs)  # type: ignore[misc]
        for throttle in _throttles(request):
            if finished.status_code in throttle.uncounted:
                throttle.give_back()
            if throttle.headers and throttle.state is not None:
                finished["X-RateLimit-Limit"] = str(throttle.state.limit)
                finished["X-RateLimit-Remaining"] = str(throttle.state.remaining)
                finished["X-RateLimit-Reset"] = str(math.ceil(time.time() + throttle.state.reset_seconds))
        return finished


def _throttles(request: Request) -> list[RedisThrottle]:
    """Those that have counted this request."""
    return getattr(request._request, "throttles", [])
