"""The headers that say how many calls are left: `X-RateLimit-*` of the day, and `RateLimit` and `RateLimit-Policy` of
day and minute as the IETF's draft has them (draft-ietf-httpapi-ratelimit-headers).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it imports REST framework, which the model's client does without
    from common.request_counts import RateState

DAY_SECONDS = 86_400
MINUTE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class DayState:
    """Number of an account's calls that counted on a day, and the limit."""

    day: date
    limit: int
    used: int

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    @property
    def ends_at(self) -> int:
        """Return the end of the day, 00:00 UTC, in seconds since the epoch."""
        following = self.day + timedelta(days=1)
        return int(datetime(following.year, following.month, following.day, tzinfo=UTC).timestamp())

    @property
    def seconds_left(self) -> int:
        """Return the seconds to the end of the day, at least one."""
        return max(1, math.ceil(self.ends_at - time.time()))


def today() -> date:
    return datetime.now(UTC).date()


def unknown_caller() -> DayState:
    """Return the day of a request without a valid key: nothing is left."""
    return DayState(today(), 0, 0)


def rate_headers(day: DayState, minute: RateState | None = None) -> dict[str, str]:
    """Return the headers. `minute` is None if the call was not counted in a minute: Redis does not answer, or the
    request was refused before.
    """
    policy = [f'"day";q={day.limit};w={DAY_SECONDS}']
    left = [f'"day";r={day.remaining};t={day.seconds_left}']
    if minute is not None:
        policy.append(f'"minute";q={minute.limit};w={MINUTE_SECONDS}')
        left.append(f'"minute";r={minute.remaining};t={max(0, math.ceil(minute.reset_seconds))}')
    return {
        "X-RateLimit-Limit": str(day.limit),
        "X-RateLimit-Remaining": str(day.remaining),
        "X-RateLimit-Reset": str(day.ends_at),
        "RateLimit-Policy": ", ".join(policy),
        "RateLimit": ", ".join(left),
    }
