"""Limits on guessing: how many attempts with a wrong secret may come from one address, and for one name.

`Attempt` is for secrets whose check is slow (passwords): an attempt is counted before the check and given back after a
right one, so that any number of attempts at once stays within the limits. `FailureLimit` is for secrets whose check
costs little (random ones, common/wrong_secrets.py): only failures are counted.

Both count in Redis, over all processes. Without Redis they limit nothing, as it must not be possible to lock everybody
out by an outage; each such attempt is logged.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from threading import Lock

from redis import RedisError

from common.errors import RateLimited
from common.request_counts import count_request, uncount_request

logger = logging.getLogger(__name__)

# What providers give one customer of IPv6 is at most so large, most often: 256 networks of /64.
IPV6_PREFIX = 56
REMEMBERED = 10_000
_SOURCE = "source"


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """`kind` names the secrets. Attempts in any `window_seconds`."""

    kind: str
    per_source: int
    per_name: int
    window_seconds: int


class Remembered:
    """Texts for some seconds each, at most REMEMBERED of them. Safe in many threads."""

    def __init__(self) -> None:
        self._until: OrderedDict[str, float] = OrderedDict()
        self._lock = Lock()

    def add(self, text: str, seconds: float) -> None:
        """Add an entry; the oldest is forgotten if there are too many."""
        with self._lock:
            self._until[text] = time.monotonic() + seconds
            self._until.move_to_end(text)
            if len(self._until) > REMEMBERED:
                self._until.popitem(last=False)

    def seconds_left(self, text: str) -> float:
        """Return the seconds left; 0 if the entry is forgotten."""
        until = self._until.get(text)
        return max(until - time.monotonic(), 0.0) if until is not None else 0.0


class Attempt:
    """One counted attempt. Leaves two counts in Redis until `give_back`, or until the window has passed.

    `source` is where it comes from: a `network_of` an address, or what else is to be counted together.
    """

    def __init__(self, limits: AttemptLimits, source: str, name: str) -> None:
        """Raise RateLimited with Retry-After if the address or the name has used up its attempts."""
        self._limits = limits
        self._windows = _windows(limits, source, name)
        self._member = secrets.token_hex(8)
        wait = _count(self._windows, limits, self._member)
        if wait:
            _log_refusal(self._windows, wait)
            raise too_many(wait)

    def give_back(self) -> None:
        """Give an attempt back whose secret was right: it does not count."""
        try:
            for window in self._windows:
                uncount_request(window, self._member)
        except RedisError as exc:
            logger.warning("attempts of %s: %s", self._limits.kind, exc)


class TooManyFailures(RateLimited):
    """A wrong secret, of an address or for a name that had too many."""


class FailureLimit:
    """The wrong secrets of one kind, as one process sees them. Safe in many threads. `source`: as of `Attempt`.

    Each secret is looked at, and only a wrong one is counted and refused: many clients may share an address, and
    anybody may know a name, so that one of them must not be able to lock out the others.
    """

    def __init__(self, limits: AttemptLimits) -> None:
        self._limits = limits
        self._refused = Remembered()

    def record_failure(self, source: str, name: str = "") -> None:
        """Count a wrong secret; without a name, by its source alone. Raise TooManyFailures if one of them is beyond
        its limit. Nothing is counted while a source is known to be.
        """
        if (left := self._refused.seconds_left(source)) > 0:
            raise too_many(left)
        by_source, by_name = _windows(self._limits, source, name)
        wait = _count((by_source,), self._limits, "")
        if wait:
            self._refused.add(source, wait)
        if name:
            wait = max(wait, _count((by_name,), self._limits, ""))
        if wait:
            _log_refusal((by_source, by_name), wait)
            raise too_many(wait)


def too_many(seconds: float) -> TooManyFailures:
    """Return the error with its Retry-After."""
    wait = math.ceil(max(seconds, 1))
    return TooManyFailures(
        f"Too many attempts with a wrong secret. Try again in {wait} seconds.", headers={"Retry-After": str(wait)}
    )


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Return the text under which attempts of an address are counted; for IPv6 it is the network that one customer
    has.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or IPv6Network((int(parsed), IPV6_PREFIX), strict=False))
    return str(parsed)


def _windows(limits: AttemptLimits, source: str, name: str) -> tuple[str, str]:
    """Return the keys of the two windows. A name is a caller's text of any length, and may be a secret typed by
    mistake.
    """
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{limits.kind}:{_SOURCE}:{source}", f"{limits.kind}:name:{digest}"


def _count(windows: tuple[str, ...], limits: AttemptLimits, member: str) -> float:
    """Return seconds until the next attempt is allowed; 0 if this one is."""
    try:
        for window in windows:
            limit = limits.per_source if f":{_SOURCE}:" in window else limits.per_name
            state = count_request(window, limit=limit, window_seconds=limits.window_seconds, member=member)
            if not state.accepted:
                return max(state.reset_seconds, 1.0)
    except RedisError as exc:
        logger.warning("attempts of %s cannot be counted: %s", limits.kind, exc)
    return 0.0


def _log_refusal(windows: tuple[str, str], wait: float) -> None:
    """Log a refusal once for as long as it lasts: refused attempts must not fill the log. With the digest of the name,
    not the name: some of them are passwords in the wrong field.
    """
    if not _logged.seconds_left(windows[0]):
        _logged.add(windows[0], wait)
        logger.warning("too many failed attempts, refused for %.0f s: %s, %s", wait, *windows)


_logged = Remembered()
