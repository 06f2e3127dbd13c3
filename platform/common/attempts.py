"""Limits on guessing: how many attempts with a wrong secret may come from one address, and for one name.

`Attempt` is for secrets whose check is slow (passwords): an attempt is counted before the check and given back after a
right one, so that any number of attempts at once stays within the limits. `FailureLimit` is for secrets whose check is
cheaper than a call of Redis (client secrets): only failures are counted.

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
from common.redis import redis_client, redis_key
from common.request_counts import count_request, uncount_request

logger = logging.getLogger(__name__)

# What providers give one customer of IPv6 is at most so large, most often: 256 networks of /64.
IPV6_PREFIX = 56
REMEMBERED = 10_000
# How long a process knows of a right secret by itself, and all processes together by Redis.
PROVEN_SECONDS = 600.0
SHARED_PROOF_SECONDS = 24 * 3600
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
        """The oldest is forgotten where there are too many."""
        with self._lock:
            self._until[text] = time.monotonic() + seconds
            self._until.move_to_end(text)
            if len(self._until) > REMEMBERED:
                self._until.popitem(last=False)

    def seconds_left(self, text: str) -> float:
        """0 where it is forgotten."""
        until = self._until.get(text)
        return max(until - time.monotonic(), 0.0) if until is not None else 0.0


class Attempt:
    """One counted attempt. Leaves two counts in Redis until `give_back`, or until the window has passed.

    `source` is where it comes from: a `network_of` an address, or what else is to be counted together.
    """

    def __init__(self, limits: AttemptLimits, source: str, name: str) -> None:
        """Raises RateLimited with Retry-After where the address or the name has used up its attempts."""
        self._limits = limits
        self._windows = _windows(limits, source, name)
        self._member = secrets.token_hex(8)
        wait = _count(self._windows, limits, self._member)
        if wait:
            _log_refusal(self._windows, wait)
            raise too_many(wait)

    def give_back(self) -> None:
        """The secret was right: the attempt does not count."""
        try:
            for window in self._windows:
                uncount_request(window, self._member)
        except RedisError as exc:
            logger.warning("attempts of %s: %s", self._limits.kind, exc)


class FailureLimit:
    """The failures of one kind of secret, as one process sees them. Safe in many threads. `source`: as of `Attempt`.

    An address that is beyond its limit is refused without a look at its secret, but for secrets that were right from
    the same address within SHARED_PROOF_SECONDS, at any process: many clients may share an address, and one of them
    must not be able to lock out the others. A name beyond its limit only changes the response to a wrong secret, for
    the same reason.
    """

    def __init__(self, limits: AttemptLimits) -> None:
        self._limits = limits
        self._refused = Remembered()
        self._proven = Remembered()

    def require_allowed(self, source: str, name: str, secret: str) -> None:
        """Raises RateLimited where the address is refused at present."""
        left = self._refused.seconds_left(source)
        if left <= 0:
            return
        proof = _proof(source, name, secret)
        if not self._proven.seconds_left(proof) and not _is_proven_elsewhere(proof):
            raise too_many(left)

    def record_failure(self, source: str, name: str) -> None:
        """Count a wrong secret. Raises RateLimited where the address or the name is beyond its limit."""
        by_source, by_name = _windows(self._limits, source, name)
        wait = _count((by_source,), self._limits, "")
        if wait:
            self._refused.add(source, wait)
        wait = max(wait, _count((by_name,), self._limits, ""))
        if wait:
            _log_refusal((by_source, by_name), wait)
            raise too_many(wait)

    def record_success(self, source: str, name: str, secret: str) -> None:
        """Remember that this secret was right from this address. One call of Redis in PROVEN_SECONDS."""
        proof = _proof(source, name, secret)
        if not self._proven.seconds_left(proof):
            self._proven.add(proof, PROVEN_SECONDS)
            _share_proof(proof)


def too_many(seconds: float) -> RateLimited:
    """The error with its Retry-After."""
    wait = math.ceil(max(seconds, 1))
    return RateLimited(
        f"Too many attempts with a wrong secret. Try again in {wait} seconds.", headers={"Retry-After": str(wait)}
    )


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What is counted as one address: of IPv6 the network that one customer has."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or IPv6Network((int(parsed), IPV6_PREFIX), strict=False))
    return str(parsed)


def _windows(limits: AttemptLimits, source: str, name: str) -> tuple[str, str]:
    """The keys of the two windows. A name is a caller's text of any length, and may be a secret typed by mistake."""
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{limits.kind}:{_SOURCE}:{source}", f"{limits.kind}:name:{digest}"


def _count(windows: tuple[str, ...], limits: AttemptLimits, member: str) -> float:
    """Seconds until the next attempt is allowed; 0 where this one is."""
    try:
        for window in windows:
            limit = limits.per_source if f":{_SOURCE}:" in window else limits.per_name
            state = count_request(window, limit=limit, window_seconds=limits.window_seconds, member=member)
            if not state.accepted:
                return max(state.reset_seconds, 1.0)
    except RedisError as exc:
        logger.warning("attempts of %s are not counted: %s", limits.kind, exc)
    return 0.0


def _proof(source: str, name: str, secret: str) -> str:
    return hashlib.sha256("\0".join((source, name, secret)).encode(errors="surrogatepass")).hexdigest()


def _share_proof(proof: str) -> None:
    try:
        redis_client().set(redis_key(f"proven:{proof}"), 1, ex=SHARED_PROOF_SECONDS)
    except RedisError as exc:
        logger.warning("a right secret is known to this process only: %s", exc)


def _is_proven_elsewhere(proof: str) -> bool:
    try:
        return bool(redis_client().exists(redis_key(f"proven:{proof}")))
    except RedisError:
        return False


def _log_refusal(windows: tuple[str, str], wait: float) -> None:
    """Once for as long as it lasts: refused attempts must not fill the log. With the digest of the name, not the name:
    some of them are passwords in the wrong field.
    """
    if not _logged.seconds_left(windows[0]):
        _logged.add(windows[0], wait)
        logger.warning("too many failed attempts, refused for %.0f s: %s, %s", wait, *windows)


_logged = Remembered()
