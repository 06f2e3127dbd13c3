"""Counts of requests in sliding windows, exact over all processes: a sorted set of Redis for each."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.redis import redis_client, redis_key

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

    `member` names the request for `uncount_request`. Raise redis.RedisError.
    """
    arguments: list[Any] = [limit, window_seconds * 1_000_000, member or secrets.token_hex(8)]
    found: Any = redis_client().eval(_SLIDING, 1, redis_key(f"throttle:{name}"), *arguments)
    accepted, used, frees = bool(found[0]), int(found[1]), int(found[2])
    return RateState(accepted, limit, max(limit - used, 0), frees / 1_000_000)


def restore_window(name: str, members: Mapping[str, float], *, window_seconds: int) -> None:
    """Count requests that a restarted Redis has forgotten: `members` with their times in seconds since the epoch.

    Idempotent, so that any number of requests may do it at once, each before it is counted. Raise redis.RedisError.
    """
    key = redis_key(f"throttle:{name}")
    with redis_client().pipeline() as pipeline:
        pipeline.zadd(key, {member: int(at * 1_000_000) for member, at in members.items()})
        pipeline.pexpire(key, window_seconds * 1000)
        pipeline.execute()


def is_window_empty(name: str) -> bool:
    """Return whether Redis knows of no request in the window. Raise redis.RedisError."""
    return not redis_client().exists(redis_key(f"throttle:{name}"))


def uncount_request(name: str, member: str) -> None:
    """Remove a counted request from its window. Raise redis.RedisError."""
    redis_client().zrem(redis_key(f"throttle:{name}"), member)
