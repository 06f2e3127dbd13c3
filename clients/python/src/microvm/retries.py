"""When a request is sent once more, and after how long."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
        doubled: float = self.first_wait * 2 ** (attempt - 1)
        return min(self.longest_wait, doubled) * random.uniform(0.5, 1)  # noqa: S311


@dataclass(frozen=True)
class Sending:
    """One request, as often as it is sent. `timeout` in seconds; None: the client's own.

    `is_idempotent`: a second one has no second effect, although its method does not say so.
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    is_idempotent: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Whether it is sent again after a lost connection: by its method, an idempotency key, or as it was made."""
        return self.is_idempotent or self.method in _SAFE_METHODS or "Idempotency-Key" in self.headers


def refused_unprocessed(error: httpx.TransportError) -> bool:
    """Whether the request certainly never reached the service."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def is_passing(status: int, repeatable: bool) -> bool:
    """429 was refused before anything was done; other statuses count only for what may be repeated."""
    return status == 429 or (repeatable and status in _PASSING_STATUSES)
