"""Counters and histograms that all processes of all hosts add to, kept in Redis; read by `/metrics`.

An addition is one round trip and never raises: what Redis misses is not counted, and a Redis that lost its memory
begins at zero, which Prometheus takes for a restart. Labels are words of the code, never of a user: each combination is
a field of one hash for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite

from redis import RedisError

from common.confinement import confined_host_id
from common.redis import redis_client, redis_key

logger = logging.getLogger(__name__)

_SEPARATOR = "|"
# A field's name, and what is added to it.
Addition = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Counter:
    """`name`: as Prometheus has it, without `_total`."""

    name: str
    help: str
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        _declared[self.name] = self

    def of(self, amount: int, *values: str) -> list[Addition]:
        return [(_field(self.name, values), amount)] if amount else []


@dataclass(frozen=True, slots=True)
class Histogram:
    """`bounds`: the upper bounds of its buckets, ascending; the last bucket has none."""

    name: str
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...]

    def __post_init__(self) -> None:
        _declared[self.name] = self

    def of(self, value: float, *values: str) -> list[Addition]:
        bucket = next((bound for bound in self.bounds if value <= bound), None)
        return [
            (_field(self.name, (*values, "+Inf" if bucket is None else repr(bucket))), 1),
            (_field(self.name, (*values, "sum")), max(0.0, value)),
        ]


_declared: dict[str, Counter | Histogram] = {}


def declared_metrics() -> list[Counter | Histogram]:
    """Return the metrics of all modules that this process has imported, sorted by name."""
    return [_declared[name] for name in sorted(_declared)]


def record_additions(additions: Iterable[Addition]) -> None:
    """Record additions in one round trip; without Redis nothing is added."""
    wanted = list(additions)
    if not wanted:
        return
    try:
        with redis_client().pipeline(transaction=False) as pipe:
            for field, amount in wanted:
                pipe.hincrbyfloat(_key(), field, amount)
            pipe.execute()
    except RedisError as exc:
        logger.debug("not counted: %s", exc)


def read_values(hosts: Iterable[str] = ()) -> dict[str, dict[tuple[str, ...], float]]:
    """Return for each name the values by their labels; `hosts` are the ids of those that may have credentials of their
    own. One round trip; raise RedisError.
    """
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for raw, value in _stored(hosts):
        name, *labels = raw.split(_SEPARATOR)
        values = found.setdefault(name, {})
        values[tuple(labels)] = values.get(tuple(labels), 0.0) + value
    return found


def _stored(hosts: Iterable[str]) -> Iterator[tuple[str, float]]:
    with redis_client().pipeline(transaction=False) as pipe:
        for host in ("", *hosts):
            pipe.hgetall(_key_of(host))
        for stored in pipe.execute():
            for field, value in stored.items():
                # A host that was taken over may have written anything there.
                with suppress(ValueError):
                    if isfinite(number := float(value)):
                        yield field.decode(), number


def _key() -> str:
    return _key_of(confined_host_id() or "")


def _key_of(host_id: str) -> str:
    """Return the key of the processes that have this host's credentials; empty: the instance's."""
    return redis_key(f"counters:{host_id}" if host_id else "counters")


def _field(name: str, values: Sequence[str]) -> str:
    return _SEPARATOR.join((name, *values))
