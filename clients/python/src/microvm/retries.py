"""When a request is sent once more, and after how long."""

from __future__ import annotations

import random
from dataclasses import dataclass

import httpx

_SAFE_METHODS = {"GET", "HEAD", "PUT", "DELETE"}
_PASSING_STATUSES = {429, 502, 503, 504}


@dataclass(frozen=True)
class Retries:
    """`attempts` in all; waits grow from `first_wait` seconds to `longest_wait`, with jitter.

    `Retry-After` overrides the wait; where it is longer than `longest_wait`, the error is raised at once.
    """

    attempts: int = 4
    first_wait: float = 0.25
    longest_wait: float = 30.0

    def wait_before_next(self, attempt: int, retry_after: float | None) -> float | None:
        """Seconds until the next attempt; None where there is none. `attempt` counts from 1."""
        if attempt >= self.attempts:
            return None
        if retry_after is not None:
            return retry_after if retry_after <= self.longest_wait else None
        return min(self.longest_wait, self.first_wait * 2 ** (attempt - 1)) * random.uniform(0.5, 1)  # noqa: S311


def may_repeat(method: str, headers: dict[str, str]) -> bool:
    """Whether a second request does no second thing: by its method, or by an idempotency key."""
    return method in _SAFE_METHODS or "Idempotency-Key" in headers


def refused_unprocessed(error: httpx.TransportError) -> bool:
    """Whether the request certainly never reached the service."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def is_passing(status: int, repeatable: bool) -> bool:
    """429 was refused before anything was done; other statuses count only for what may be repeated."""
    return status == 429 or (repeatable and status in _PASSING_STATUSES)


def seconds_of(header: str | None) -> float | None:
    """`Retry-After` in seconds; None where it is absent or no number."""
    try:
        return None if header is None else max(0.0, float(header))
    except ValueError:
        return None
