"""Clients that leave: what their calls cost, and the place that each gives back."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from assist.places import model_places
from assist.services import NewApiKey, api_key_create
from common.async_threads import in_pool_thread
from credits.models import Balance, Entry, Hold, Rate, Unit
from tests.assist.conftest import called, configured, request_of
from tests.assist.model_server import GOOD, Exchange, ModelServer
from tests.assist.test_limits import until_calls, used
from tests.callers import Caller
from tests.common.sse.reading import until

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_client_that_leaves_ends_the_models_call_and_frees_its_place(
    api: Caller, key: NewApiKey, model: ModelServer, settings: LazySettings
) -> None:
    configured(settings, assist_concurrency=1, assist_queue=1)
    model.script = lambda exchange: model.hang(exchange) if exchange.number == 1 else exchange.good()

    async def scenario() -> Any:
        leaving, waiting = request_of(key), request_of(key)
        tasks = [asyncio.ensure_future(leaving.run())]
        await until(lambda: model.open == 1, 10)
        tasks.append(asyncio.ensure_future(waiting.run()))
        await until_calls(2)
        leaving.leave()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until_calls(0)
        return waiting

    assert asyncio.run(scenario()).status == 200
    assert (model.gone, used(api), Hold.objects.count()) == (1, 2, 0)


def left(key: NewApiKey, moment: Callable[[], object]) -> None:
    """One call whose client leaves then."""

    async def scenario() -> None:
        leaving = request_of(key)
        task = asyncio.ensure_future(leaving.run())
        await until(moment, 30)
        leaving.leave()
        await asyncio.gather(task, return_exceptions=True)
        await until_calls(0)

    asyncio.run(scenario())


def test_a_client_that_leaves_before_the_first_byte_of_the_answer_pays_the_prompt_and_counts(
    api: Caller, key: NewApiKey, model: ModelServer
) -> None:
    Rate.objects.create(unit=Unit.ASSIST_TOKENS, credits=1000, effective_from=timezone.now() - timedelta(hours=1))
    model.script = model.hang
    for number in range(1, 4):
        left(key, lambda: model.open == 1)
        asked = "".join(message["content"] for message in model.exchanges[-1].body["messages"])
        entry = Entry.objects.order_by("-id")[0]
        # One call, and a token for each four bytes.
        assert entry.amount == 1 + -(-len(asked.encode()) // 4)
        assert entry.description.endswith("counted by length, client left.")
        assert (used(api), Entry.objects.count(), Balance.objects.get().held) == (number, number, 0)


def test_a_client_that_leaves_while_a_server_is_too_busy_pays_nothing(
    api: Caller, key: NewApiKey, model: ModelServer
) -> None:
    refused = threading.Event()

    def refuse(exchange: Exchange) -> None:
        exchange.status(429, {"Retry-After": "4"})
        assert exchange.handler.connection.recv(1) == b"", "the refusal was read"
        time.sleep(0.2)
        refused.set()

    model.script = refuse
    left(key, refused.is_set)
    assert (used(api), Entry.objects.count(), Balance.objects.get().held) == (0, 0, 0)


def test_a_client_that_leaves_while_its_call_waits_for_its_turn_pays_nothing(
    api: Caller, key: NewApiKey, model: ModelServer, settings: LazySettings
) -> None:
    configured(settings, assist_concurrency=1, assist_queue=1)
    model.script = model.wait

    async def scenario() -> None:
        first, leaving = request_of(key), request_of(key)
        tasks = [asyncio.ensure_future(first.run())]
        await until(lambda: model.open == 1, 30)
        tasks.append(asyncio.ensure_future(leaving.run()))
        await until(lambda: model_places().waiting == 1, 30)
        await until_calls(2)
        leaving.leave()
        await until_calls(1)
        assert (await in_pool_thread(used, api), len(model.exchanges)) == (1, 1)
        model.held.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
    assert Entry.objects.count() == 0


def test_a_client_that_leaves_in_the_middle_of_an_answer_pays_for_what_came(
    api: Caller, key: NewApiKey, model: ModelServer
) -> None:
    def begin(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.text('{"code": "' + "x" * 400)
        model.wait(exchange)

    model.script = begin

    async def scenario() -> None:
        leaving = request_of(key)
        task = asyncio.ensure_future(leaving.run())
        await until(lambda: model.open == 1, 10)
        await asyncio.sleep(0.3)
        leaving.leave()
        await asyncio.gather(task, return_exceptions=True)
        await until_calls(0)

    asyncio.run(scenario())
    assert (used(api), Balance.objects.get().held) == (1, 0)
    assert "counted by length, client left" in Entry.objects.get().description


def test_clients_that_leave_at_any_moment_leave_exact_accounts(
    api: Caller, stranger: Caller, key: NewApiKey, model: ModelServer, settings: LazySettings
) -> None:
    """Calls that count were paid, calls given back cost nothing, and nothing stays held; two accounts at once."""
    configured(settings, assist_queue=100)
    other = api_key_create(account=stranger.account, name="", namespace=None, actor="test")

    answer, moments = json.dumps(GOOD["generate"]), 24

    def slowly(exchange: Exchange) -> None:
        """The first two say nothing until the client has left."""
        if exchange.number <= 2:
            model.wait(exchange)
        exchange.begin_stream()
        for character in answer:
            exchange.text(character)
            time.sleep(0.0005)
        exchange.text("", "stop")
        exchange.send(b"data: [DONE]\n\n")

    async def leave_after(request: Any, seconds: float) -> None:
        task = asyncio.ensure_future(request.run())
        await asyncio.sleep(seconds)
        request.leave()
        await asyncio.gather(task, return_exceptions=True)

    async def scenario() -> None:
        silent = [request_of(key), request_of(other)]
        tasks = [asyncio.ensure_future(request.run()) for request in silent]
        await until(lambda: model.open == 2, 30)
        for request in silent:
            request.leave()
        await asyncio.gather(*tasks, return_exceptions=True)
        leaving = [(request_of(each), number * 0.01) for number in range(moments) for each in (key, other)]
        await asyncio.gather(*(leave_after(*each) for each in leaving))
        await until_calls(0)

    model.script = slowly
    asyncio.run(scenario())
    assert (called(key).status, called(other).status) == (200, 200)
    for caller in (api, stranger):
        balance = Balance.objects.get(account_id=caller.account.pk)
        assert (balance.held, balance.entries.count()) == (0, used(caller))
        assert 2 <= used(caller) <= moments + 2, "those that left before the model was asked are given back"
    assert Hold.objects.count() == 0
