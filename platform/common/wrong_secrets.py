"""Wrong secrets and tokens of any kind, counted by the address that they come from: client secrets, access tokens,
those of sandboxes, API keys, send tokens, upload addresses and tokens, links to private ports.

A secret is looked at first, and counted when it is wrong: a right one from an address that guesses goes on, as others
may share the address. The secrets are random and stored as plain keyed hashes, so that a look costs a query.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from random import SystemRandom

from django.conf import settings
from django.http import HttpRequest

from common.attempts import AttemptLimits, FailureLimit, TooManyFailures, network_of
from common.request_origin import request_origin

FAILURE_SECONDS = 60
# A client that does not read its 429s is answered so much later, if waiting holds no thread, and so many at a time.
# Not all after the same time: those that ask at once would come back at once.
REFUSAL_SECONDS = (1.0, 3.0)
MOST_WAITING = 512


@lru_cache(maxsize=1)
def _failures() -> FailureLimit:
    limit = settings.ENV.secret_failures
    return FailureLimit(AttemptLimits("secret", limit, limit, FAILURE_SECONDS))


def count_wrong_secret(request: HttpRequest, name: str = "") -> None:
    """Count one, and by `name`, if it has one (a client id). Raise TooManyFailures beyond the limit of either."""
    _failures().record_failure(network_of(request_origin(request).ip_address), name)


class RefusalWaits:
    """Waits of refused requests. Belongs to one event loop."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._waiting = 0

    async def wait_before(self, error: Exception) -> None:
        """Wait before a guesser gets this error; any other error is not delayed, nor one of too many at a time."""
        if not isinstance(error, TooManyFailures) or self._waiting >= self._most:
            return
        self._waiting += 1
        try:
            await asyncio.sleep(_random.uniform(*REFUSAL_SECONDS))
        finally:
            self._waiting -= 1


refusal_waits = RefusalWaits()
_random = SystemRandom()
