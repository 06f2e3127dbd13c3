"""The day, the minute and the places: exact at once, across midnight, without Redis, with clients that leave."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import LazySettings

from assist import day_count, rate_headers, requests
from assist.calls import expire_calls
from assist.day_count import call_count, call_uncount, day_state, prune_days
from assist.errors import DayQuotaExceeded
from assist.models import Call, DayCount
from assist.services import NewApiKey, api_key_create
from common.async_threads import in_pool_thread
from common.redis import redis_client
from credits.models import Balance, Entry, Hold
from tests.assist.conftest import assert_refused, called, configured, header, request_of, run
from tests.assist.model_server import Exchange, ModelServer
from tests.callers import Caller
from tests.common.sse.reading import until

pytestmark = pytest.mark.django_db(transaction=True)


async def until_calls(number: int) -> None:
    """Until so many are under way."""
    async with asyncio.timeout(10):
        while await in_pool_thread(Call.objects.count) != number:
            await asyncio.sleep(0.02)


def calls_a_day(caller: Caller, number: int) -> None:
    plan = caller.account.plan
    plan.assist_calls_per_day = number
    plan.save()


def used(caller: Caller) -> int:
    return day_state(caller.account).used


@pytest.mark.parametrize(("plan", "limit"), [("free", 100), ("pro", 1000)])
def test_the_plan_says_how_many_calls_a_day_has(new_account: Any, model: ModelServer, plan: str, limit: int) -> None:
    caller = new_account("other", plan)
    key = api_key_create(account=caller.account, name="", namespace=None, actor="test")
    assert header(called(key), "X-RateLimit-Limit") == str(limit)
    calls_a_day(caller, 7)
    assert header(called(key), "X-RateLimit-Remaining") == "5"


def test_of_fifty_calls_at_once_five_are_answered_where_five_are_left(
    api: Caller, key: NewApiKey, model: ModelServer, settings: LazySettings
) -> None:
    configured(settings, assist_queue=60)
    calls_a_day(api, 5)
    found = run(*(request_of(key) for _ in range(50)), seconds=60)
    assert sorted(request.status for request in found) == [200] * 5 + [429] * 45
    for request in found:
        if request.status == 429:
            assert_refused(request, 429, "QUOTA_EXCEEDED")
            assert header(request, "X-RateLimit-Remaining") == "0"
            assert int(header(request, "Retry-After")) >= 1
    assert (used(api), len(model.exchanges), Entry.objects.count()) == (5, 5, 5)
    assert Hold.objects.count() == Call.objects.count() == 0


def test_two_keys_of_an_account_share_its_day_and_another_account_has_its_own(
    api: Caller, stranger: Caller, key: NewApiKey, model: ModelServer
) -> None:
    calls_a_day(api, 1)
    second = api_key_create(account=api.account, name="", namespace=None, actor="test")
    other = api_key_create(account=stranger.account, name="", namespace=None, actor="test")
    assert called(key).status == 200
    assert_refused(called(second), 429, "QUOTA_EXCEEDED")
    assert called(other).status == 200
    assert_refused(called(other), 429, "QUOTA_EXCEEDED")
    assert used(stranger) == 1


def test_a_failed_generation_is_given_back(api: Caller, key: NewApiKey, model: ModelServer) -> None:
    calls_a_day(api, 1)
    model.script = lambda exchange: exchange.answer("prose")
    for _ in range(3):
        found = called(key)
        assert_refused(found, 502, "GENERATION_FAILED")
        assert header(found, "X-RateLimit-Remaining") == "1"
    model.script = Exchange.good
    assert called(key).status == 200


def test_a_plan_without_calls_has_none(api: Caller, key: NewApiKey, model: ModelServer) -> None:
    calls_a_day(api, 0)
    assert_refused(called(key), 429, "QUOTA_EXCEEDED")
    assert DayCount.objects.count() == 0


def test_the_day_ends_at_midnight_in_utc_and_a_clock_set_back_finds_the_day_before(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls_a_day(api, 2)

    def at(moment: datetime) -> None:
        for module in (day_count, rate_headers):
            monkeypatch.setattr(module, "today", lambda: moment.date())

    evening = datetime(2026, 11, 23, 23, 59, 59, tzinfo=UTC)
    at(evening)
    first, second = call_count(api.account), call_count(api.account)
    assert (first.remaining, second.remaining) == (1, 0)
    assert second.ends_at == evening.timestamp() + 1
    with pytest.raises(DayQuotaExceeded):
        call_count(api.account)
    at(evening + timedelta(seconds=1))
    assert call_count(api.account).remaining == 1
    at(evening)
    with pytest.raises(DayQuotaExceeded):
        call_count(api.account)
    # What began before midnight is given back to its own day.
    call_uncount(api.account.pk, evening.date())
    assert call_count(api.account).remaining == 0


def test_the_counts_of_a_day_outlive_redis(api: Caller, key: NewApiKey, model: ModelServer) -> None:
    called(key)
    redis_client().flushall()
    assert header(called(key), "X-RateLimit-Remaining") == "998"


def test_counts_of_long_ago_are_removed(api: Caller) -> None:
    DayCount.objects.create(account=api.account, day=datetime(2020, 1, 1, tzinfo=UTC).date(), used=3)
    call_count(api.account)
    assert (prune_days(), DayCount.objects.count()) == (1, 1)


def test_calls_of_a_minute_are_limited(key: NewApiKey, model: ModelServer, settings: LazySettings, api: Caller) -> None:
    configured(settings, assist_calls_per_minute=2)
    assert called(key).status == 200
    second = called(key)
    assert '"minute";q=2;w=60' in header(second, "RateLimit-Policy")
    assert '"minute";r=0;t=' in header(second, "RateLimit")
    third = called(key)
    assert_refused(third, 429, "RATE_LIMIT_EXCEEDED")
    assert 1 <= int(header(third, "Retry-After")) <= 61
    assert used(api) == 2


def test_without_redis_the_minute_is_not_counted_and_the_day_is(
    key: NewApiKey, model: ModelServer, settings: LazySettings, api: Caller
) -> None:
    configured(settings, assist_calls_per_minute=1)
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    found = [called(key) for _ in range(3)]
    assert [request.status for request in found] == [200] * 3
    assert "minute" not in header(found[0], "RateLimit")
    assert used(api) == 3


def test_beyond_the_queue_a_call_is_refused_at_once_and_does_not_count(
    api: Caller, key: NewApiKey, model: ModelServer, settings: LazySettings
) -> None:
    configured(settings, assist_concurrency=2, assist_queue=3)
    model.script = model.hang

    async def scenario() -> tuple[Any, list[Any]]:
        held = [request_of(key) for _ in range(5)]
        tasks = [asyncio.ensure_future(request.run()) for request in held]
        await until_calls(5)
        await until(lambda: model.open == 2, 10)
        refused = request_of(key)
        await asyncio.wait_for(refused.run(), 2)
        model.held.set()
        await asyncio.gather(*tasks)
        return refused, held

    refused, held = asyncio.run(scenario())
    assert_refused(refused, 429, "RATE_LIMIT_EXCEEDED")
    assert int(header(refused, "Retry-After")) >= 1
    assert [request.status for request in held] == [200] * 5
    assert used(api) == 5


def test_slow_names_of_one_account_delay_no_call_of_another(
    key: NewApiKey, stranger: Caller, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their threads are their own."""
    held = threading.Event()
    monkeypatch.setattr(requests, "required_host", lambda url: held.wait(30) and "example.com")
    other = api_key_create(account=stranger.account, name="", namespace=None, actor="test")
    body = {"prompt": "x", "webhook_url": "https://slow.example.com/"}

    async def check() -> None:
        slow = asyncio.gather(*(request_of(key, body=body).run() for _ in range(16)))
        await asyncio.sleep(0.5)
        try:
            plain = request_of(other)
            await asyncio.wait_for(plain.run(), 10)
            assert plain.status == 200
        finally:
            held.set()
            await slow

    asyncio.run(check())


def test_a_call_that_waits_too_long_for_its_turn_is_given_back(
    api: Caller, key: NewApiKey, model: ModelServer, settings: LazySettings
) -> None:
    configured(settings, assist_concurrency=1, assist_queue=1, assist_queue_seconds=0.3, assist_seconds=2.0)
    model.script = model.hang
    first, second = run(request_of(key), request_of(key))
    assert sorted([first.status, second.status]) == [429, 502]
    assert used(api) == 0


def test_calls_of_a_process_that_died_are_given_back(api: Caller, key: NewApiKey, model: ModelServer) -> None:
    """As its rows are then; a killed process itself is in test_killed.py."""
    from assist.calls import call_begin
    from assist.selectors import paying_namespace

    begun = call_begin(key=key.api_key, namespace=paying_namespace(key.api_key), tokens=1000)
    assert (used(api), expire_calls(), Hold.objects.count()) == (1, 0, 1)
    later = begun.call.expires_at
    Call.objects.update(expires_at=later - timedelta(hours=1))
    assert [expire_calls(), expire_calls()] == [1, 0]
    assert (used(api), Hold.objects.count(), Balance.objects.get().held) == (0, 0, 0)
    # Written by a clock that was a day ahead.
    begun = call_begin(key=key.api_key, namespace=paying_namespace(key.api_key), tokens=1000)
    Call.objects.update(expires_at=later + timedelta(days=1))
    assert expire_calls() == 1
