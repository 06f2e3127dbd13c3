"""Throttles are exact over all processes, say when to retry, and have a defined behavior without Redis."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import LazySettings
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from common.errors import DomainError
from common.redis import redis_client, redis_key
from common.request_counts import count_request
from common.responses import ok
from common.throttling import DayThrottle, RateLimitMixin, RedisThrottle


@pytest.fixture
def scope_name() -> Iterator[str]:
    name = f"test-{os.urandom(4).hex()}"
    yield name
    for key in redis_client().scan_iter(redis_key(f"throttle:{name}*")):
        redis_client().delete(key)


def requested(
    scope_name: str,
    *,
    address: str = "10.0.0.1",
    base: type[RedisThrottle] = RedisThrottle,
    status: int = 200,
    **options: Any,
) -> Response:
    """The response of a view that responds with `status`, behind a throttle of two requests in a minute."""
    fields = {"scope": scope_name, "limit": 2, "window_seconds": 60, **options}
    throttle = type("Throttle", (base,), fields)

    class View(RateLimitMixin, APIView):
        throttle_classes = (throttle,)
        authentication_classes = ()
        permission_classes = ()

        def get(self, request: Any) -> Response:
            return ok(status)

    return View.as_view()(APIRequestFactory().get("/", REMOTE_ADDR=address))


def test_one_request_too_many_is_rate_limited_and_says_when_to_retry(scope_name: str) -> None:
    assert [requested(scope_name).status_code for _ in range(2)] == [200, 200]
    refused = requested(scope_name)
    assert (refused.status_code, refused.data["code"]) == (429, "rate_limited")
    assert 55 <= int(refused["Retry-After"]) <= 60
    assert "X-RateLimit-Limit" not in refused
    assert requested(scope_name, address="10.0.0.2").status_code == 200, "another client has its own count"


def test_requests_of_before_the_clock_was_set_back_do_not_count(scope_name: str) -> None:
    """By their times they are an hour ahead: the caller would be locked out for an hour and a minute."""
    key, ahead = redis_key(f"throttle:{scope_name}:address:10.0.0.1"), int((time.time() + 3600) * 1_000_000)
    redis_client().zadd(key, {"one": ahead, "two": ahead + 1})
    assert [requested(scope_name).status_code for _ in range(3)] == [200, 200, 429]
    assert int(requested(scope_name)["Retry-After"]) <= 60


def test_headers_are_on_every_response(scope_name: str) -> None:
    shown = [requested(scope_name, headers=True) for _ in range(3)]
    assert [answer["X-RateLimit-Remaining"] for answer in shown] == ["1", "0", "0"]
    assert {answer["X-RateLimit-Limit"] for answer in shown} == {"2"}
    assert all(time.time() + 50 < int(answer["X-RateLimit-Reset"]) <= time.time() + 61 for answer in shown)
    assert shown[-1].status_code == 429


def test_a_place_is_free_again_when_the_oldest_request_leaves_the_window(scope_name: str) -> None:
    first = count_request(scope_name, limit=1, window_seconds=1)
    second = count_request(scope_name, limit=1, window_seconds=1)
    assert (first.accepted, second.accepted) == (True, False)
    assert 0 < second.reset_seconds <= 1
    time.sleep(second.reset_seconds + 0.05)
    assert count_request(scope_name, limit=1, window_seconds=1).accepted
    assert 0 < redis_client().ttl(redis_key(f"throttle:{scope_name}")) <= 1


def test_of_many_at_once_exactly_the_limit_is_accepted(scope_name: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        states = list(pool.map(lambda _: count_request(scope_name, limit=50, window_seconds=60), range(200)))
    assert sum(state.accepted for state in states) == 50
    assert min(state.remaining for state in states) == 0


@pytest.mark.parametrize(("fail_open", "status"), [(True, 200), (False, 429)])
def test_without_redis_a_throttle_does_what_was_decided(
    scope_name: str, settings: LazySettings, fail_open: bool, status: int
) -> None:
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    answer = requested(scope_name, fail_open=fail_open, headers=True)
    assert answer.status_code == status
    assert answer.headers.get("Retry-After") == (None if fail_open else "5")
    settings.REDIS_URL = settings.ENV.redis_url


class QuotaExceeded(DomainError):
    code = "QUOTA_EXCEEDED"
    status = 429


def test_a_throttle_may_refuse_with_a_code_of_its_own(scope_name: str) -> None:
    shown = [requested(scope_name, error=QuotaExceeded, headers=True) for _ in range(3)]
    assert (shown[-1].status_code, shown[-1].data["code"]) == (429, "QUOTA_EXCEEDED")
    assert 55 <= int(shown[-1]["Retry-After"]) <= 60
    assert shown[-1]["X-RateLimit-Remaining"] == "0"


def test_a_day_ends_at_midnight_utc(scope_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    day = {"base": DayThrottle, "headers": True, "window_seconds": 86400}
    now = (time.time() // 86400 + 1) * 86400 - 10  # ten seconds before midnight
    monkeypatch.setattr(time, "time", lambda: now)
    shown = [requested(scope_name, **day) for _ in range(3)]
    assert [answer.status_code for answer in shown] == [200, 200, 429]
    assert {answer["X-RateLimit-Reset"] for answer in shown} == {str(int(now) + 10)}
    assert shown[-1]["Retry-After"] == "10"
    monkeypatch.setattr(time, "time", lambda: now + 10)
    assert requested(scope_name, **day)["X-RateLimit-Remaining"] == "1"


def test_a_response_that_does_not_count_is_given_back(scope_name: str) -> None:
    options = {"uncounted": frozenset({502}), "headers": True}
    shown = [requested(scope_name, status=status, **options) for status in (502, 502, 502, 200, 502, 200, 502)]
    assert [answer["X-RateLimit-Remaining"] for answer in shown] == ["2", "2", "2", "1", "1", "0", "0"]
    assert shown[-1].status_code == 429
