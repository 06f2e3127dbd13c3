"""Two instances on one Redis: neither sees a key, an event or a task of the other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery
from django.conf import LazySettings
from redis import RedisError

from common.redis import blocking_client, open_client, redis_client, redis_is_available, redis_key
from config import celery_settings
from tests.common.sse.reading import Writer, fresh, reading

ROOT = Path(__file__).resolve().parents[2]
CELERY = [sys.executable, "-m", "celery", "-A", "tests.common.broker_app"]
ONE, TWO = "aaaaaa:", "bbbbbb:"


def test_every_name_begins_with_the_instance(settings: LazySettings) -> None:
    settings.REDIS_PREFIX = ONE
    assert redis_key("usage:ws_1") == "aaaaaa:usage:ws_1"


def test_celery_has_the_prefix_of_the_other_names(settings: LazySettings) -> None:
    assert celery_settings.broker_transport_options["global_keyprefix"] == settings.REDIS_PREFIX
    assert f"{settings.ENV.instance}:" == settings.REDIS_PREFIX


def test_clients_are_shared_and_bounded(settings: LazySettings) -> None:
    assert redis_client() is redis_client()
    assert blocking_client(3) is blocking_client(3)
    assert blocking_client(3).connection_pool is not redis_client().connection_pool
    assert blocking_client(3).connection_pool.connection_kwargs["socket_timeout"] == 8
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    assert not redis_is_available()
    with open_client(0.5) as client, pytest.raises(RedisError):
        client.ping()


def test_an_event_stream_gets_no_event_of_another_instance(settings: LazySettings) -> None:
    async def run() -> None:
        channel = fresh()
        settings.REDIS_PREFIX = ONE
        async with reading(channel) as (client, runtime):
            await Writer(runtime.replay, channel).write("of one")
            assert (await client.next()).data == "of one"
            settings.REDIS_PREFIX = TWO
            assert await runtime.replay.position(channel) == ""
            await Writer(runtime.replay, channel).write("of two")
            assert await client.nothing()
            settings.REDIS_PREFIX = ONE
            assert await runtime.replay.position(channel) == "1"

    asyncio.run(run())


class Instance:
    """A worker process of one instance on the tests' Redis, and what sends to it."""

    def __init__(self, instance: str, folder: Path) -> None:
        self.done_file = folder / instance
        self.done_file.touch()
        self.app = Celery(instance, set_as_current=False)
        self.app.config_from_object(celery_settings)
        options = {**celery_settings.broker_transport_options, "global_keyprefix": f"{instance}:"}
        self.app.conf.update(broker_transport_options=options)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "PLATFORM_INSTANCE": instance,
            "DONE_FILE": str(self.done_file),
        }
        worker = ["worker", "--pool", "solo", "--queues", "host.local", "--hostname", f"{instance}@host"]
        self.process = subprocess.Popen([*CELERY, *worker], env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)

    def send(self, text: str) -> None:
        self.app.send_task("append", args=[text], queue="host.local")

    def workers(self, seconds: float) -> list[str]:
        """The workers that reply to a ping; it is sent by pub/sub, replies by queues."""
        return [name for reply in self.app.control.ping(timeout=seconds) for name in reply]

    def done(self) -> list[str]:
        return self.done_file.read_text().split()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(120)


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[list[Instance]]:
    redis_client().flushall()
    found = [Instance("aaaaaa", tmp_path), Instance("bbbbbb", tmp_path)]
    yield found
    for one in found:
        one.stop()


def until(true: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_instances_of_the_same_host_name_do_not_take_each_others_tasks(instances: list[Instance]) -> None:
    one, two = instances
    one.send("first")
    until(lambda: one.done() == ["first"])
    until(lambda: two.workers(0.5) == ["bbbbbb@host"])
    two.stop()
    # A worker that took tasks of the other instance would take these: its own is not there.
    for text in ("a", "b", "c"):
        two.send(text)
    one.send("last")
    until(lambda: one.done() == ["first", "last"])
    assert two.done() == []
    assert (one.workers(1), two.workers(1)) == (["aaaaaa@host"], [])
    assert redis_client().llen("bbbbbb:host.local") == 3
    names = [key.decode() for key in redis_client().scan_iter("*")]
    assert [name for name in names if not name.startswith((ONE, TWO))] == []
