"""What an open stream holds of its process: no thread, no database connection; publishing waits for the commit."""

from __future__ import annotations

import asyncio
import gc
import json
import threading

import pytest
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from common import async_threads
from common.redis import open_async_client, redis_client, redis_key
from common.sse import response
from common.sse.replay import PUBSUB_CHANNEL, ReplayBuffer
from tests.asgi import Request
from tests.callers import Caller
from tests.common.sse.reading import until
from tests.workspaces.rows import make_workspace
from workspaces.logs.channels import cleared_on_commit, log_channel

pytestmark = pytest.mark.django_db(transaction=True)
STREAMS = 40


def open_connections() -> int:
    # Not isinstance, which asks a weak proxy for the class of an object that may be gone.
    wrappers = [one for one in gc.get_objects() if issubclass(type(one), BaseDatabaseWrapper)]
    return len([one for one in wrappers if one.connection is not None])


def held_by(api: Caller, path: str) -> tuple[int, int]:
    """How many threads and connections STREAMS open streams take; afterwards everything is given back."""
    found: list[int] = []

    async def work() -> None:
        threads, connections = threading.active_count(), open_connections()
        requests = [Request(path, api.headers) for _ in range(STREAMS)]
        running = [asyncio.ensure_future(one.run()) for one in requests]
        await until(lambda: all(b"retry" in one.body for one in requests), 30)
        await asyncio.sleep(0.3)  # the threads end by themselves
        found.extend((threading.active_count() - threads, open_connections() - connections))
        assert {one.status for one in requests} == {200}
        for one in requests:
            one.leave()
        await asyncio.wait(running, timeout=20)
        assert all(task.done() for task in running)

    asyncio.run(work())
    return found[0], found[1]


def test_open_streams_hold_no_thread_and_no_connection(api: Caller) -> None:
    row = make_workspace(api.account)
    threads, connections = held_by(api, f"/workspace/{row.pk}/stats/stream")
    # The few that all streams of a process share: for rights, for sources.
    assert threads <= 8
    assert connections <= 4


def test_without_giving_it_back_each_would_hold_a_thread(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (response, async_threads):
        monkeypatch.setattr(module, "release_thread", lambda: None)
    row = make_workspace(api.account)
    threads, _ = held_by(api, f"/workspace/{row.pk}/stats/stream")
    assert threads > STREAMS / 2  # threads of others may end during the test


def test_a_clear_within_a_transaction_is_published_with_its_commit(api: Caller) -> None:
    channel = log_channel("ws_x", "cmd")

    async def begin() -> None:
        async with open_async_client() as client:
            await ReplayBuffer(client).append(channel, [("message", "{}")], expected="", position="5:00")

    asyncio.run(begin())
    with redis_client().pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe(redis_key(PUBSUB_CHANNEL))
        subscription.get_message(timeout=1)
        with transaction.atomic():
            with cleared_on_commit("ws_x", ["cmd"], ""):
                pass
            assert subscription.get_message(timeout=0.3) is None
        message = subscription.get_message(timeout=5)
        assert message is not None
        assert json.loads(message["data"])["data"] == '{"cleared":true}'
        with pytest.raises(ZeroDivisionError):
            clear_and_fail()
        assert subscription.get_message(timeout=0.3) is None


@transaction.atomic
def clear_and_fail() -> None:
    with cleared_on_commit("ws_x", ["cmd"], ""):
        pass
    raise ZeroDivisionError
