"""`GET /metrics`: the state of the platform, as Prometheus reads it. Needs the token of `manage.py metrics_token`.

Gauges are a fixed number of queries over indexes, made at most once in CACHE_SECONDS in each process, however often and
by however many it is asked; counters are in Redis, and left out if that is away.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from functools import cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from redis import RedisError

from common import counters
from common.cached_value import CachedValue
from common.errors import MethodNotAllowed, Unauthorized
from common.redis import redis_client, redis_key
from common.stream_clients import open_clients
from common.wrong_secrets import count_wrong_secret
from config.app_list import app_modules
from config.metrics_token import metrics_token
from vmbackend.models import Host

CACHE_SECONDS = 5.0
QUEUES = ("default", "pages", "media")


def metrics(request: HttpRequest) -> HttpResponse:
    """Raise MethodNotAllowed, Unauthorized, TooManyFailures."""
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed
    sent = request.headers.get("Authorization", "")
    if not hmac.compare_digest(sent.encode(), f"Bearer {metrics_token(settings.SECRET_KEY)}".encode()):
        if sent:
            count_wrong_secret(request)
        raise Unauthorized("Send the token of `manage.py metrics_token` as a bearer token.")
    return HttpResponse(TEXT.get(), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Platform(Collector):
    def collect(self) -> Iterable[Metric]:
        for app in app_modules("gauges"):
            yield from app.gauges()
        try:
            yield from _queues()
            yield _stream_clients()
            yield from _counters()
            redis_up = 1
        except RedisError:
            redis_up = 0
        yield GaugeMetricFamily("mvm_redis_up", "Whether Redis answers.", value=redis_up)


@cache
def _registry() -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Platform())
    return registry


TEXT = CachedValue(lambda: generate_latest(_registry()), CACHE_SECONDS)


def _queues() -> Iterator[Metric]:
    """Yield messages that no worker has fetched. Messages for hosts are wake-ups: `mvm_operations_live` counts their
    work.
    """
    found = GaugeMetricFamily("mvm_queue_messages", "Tasks that no worker has fetched.", labels=["queue"])
    with redis_client().pipeline(transaction=False) as pipe:
        for queue in QUEUES:
            pipe.llen(redis_key(queue))
        for queue, length in zip(QUEUES, pipe.execute(), strict=True):
            found.add_metric([queue], length)
    yield found


def _stream_clients() -> Metric:
    found = GaugeMetricFamily("mvm_stream_clients", "Open event streams and WebSockets.", labels=["kind"])
    for kind, count in open_clients().items():
        found.add_metric([kind], count)
    return found


def _counters() -> Iterator[Metric]:
    app_modules("counted")  # which declare them
    values = counters.read_values(Host.objects.values_list("pk", flat=True))
    for one in counters.declared_metrics():
        found = values.get(one.name, {})
        yield _histogram(one, found) if isinstance(one, counters.Histogram) else _counter(one, found)


def _counter(declared: counters.Counter, found: dict[tuple[str, ...], float]) -> Metric:
    metric = CounterMetricFamily(declared.name, declared.help, labels=declared.labels)
    for labels, value in sorted(found.items()):
        metric.add_metric(labels, value)
    return metric


def _histogram(declared: counters.Histogram, found: dict[tuple[str, ...], float]) -> Metric:
    metric = HistogramMetricFamily(declared.name, declared.help, labels=declared.labels)
    bounds = [*map(repr, declared.bounds), "+Inf"]
    for labels in sorted({labels[:-1] for labels in found}):
        total, buckets = 0.0, []
        for bound in bounds:
            total += found.get((*labels, bound), 0)
            buckets.append((bound, total))
        metric.add_metric(labels, buckets, found.get((*labels, "sum"), 0))
    return metric
