"""The user that a host has in Redis: its own queue and keys; everything else is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from django.conf import settings

from common import counters
from common.host_access.redis_users import create_redis_user, drop_redis_user, list_redis_users
from common.redis import redis_client, redis_key
from common.sse.hub import Hub
from common.sse.replay import Channel
from tests.environment import STATE
from vmbackend.models import new_host_id

OTHER = "host_aaaaaaaaaaaaaaaa"
OF_OTHERS: dict[str, tuple[str, ...]] = {
    "reads another's queue": ("LRANGE", f"host.{OTHER}", "0", "-1"),
    "takes a task of another": ("BRPOP", f"host.{OTHER}", "1"),
    "sends a task to another": ("LPUSH", f"host.{OTHER}", "x"),
    "sends a task to the workers": ("LPUSH", "default", "x"),
    "sends a task to the senders of webhooks": ("LPUSH", "webhooks", "x"),
    "takes a task of the workers": ("RPOP", "default"),
    "binds its queue elsewhere": ("SADD", "_kombu.binding.celery.pidbox", "x"),
    "reads what others have not acknowledged": ("HGETALL", "unacked"),
    "gives back what others have not acknowledged": ("ZREM", "unacked_index", "x"),
    "reads samples of another": ("GET", f"samples:{OTHER}:ws_x:now"),
    "writes samples of another": ("SET", f"samples:{OTHER}:ws_x:now", "x"),
    "reads a console of another": ("LRANGE", f"sse:{OTHER}:log:ws_x:boot:events", "0", "-1"),
    "reads a log of a guest": ("HGETALL", "sse:log:ws_x:cmd"),
    "writes a log of a guest": ("HSET", "sse:log:ws_x:cmd", "position", "0"),
    "reads who looks at another": ("ZRANGE", f"boot-watched:{OTHER}", "0", "-1"),
    "answers for another": ("RPUSH", f"rpc:{OTHER}:x", "x"),
    "counts for the platform": ("HINCRBYFLOAT", "counters", "x", "1"),
    "counts for another": ("HINCRBYFLOAT", f"counters:{OTHER}", "x", "1"),
    "keeps another awake": ("ZADD", "last-used:ws_x", "1", "x"),
    "reads wake-ups of operations": ("LRANGE", "operation:op_x", "0", "-1"),
    "lifts a limit": ("DEL", "throttle:x"),
    "reads a limit": ("ZRANGE", "throttle:x", "0", "-1"),
    "takes the lock of beat": ("SET", "beat", "x"),
    "tells the platform's streams": ("PUBLISH", "events_channel", "x"),
    "tells another's streams": ("PUBLISH", f"events_channel:{OTHER}", "x"),
    "commands the workers": ("PUBLISH", "/0.celery.pidbox", "x"),
    "reads others by a script": ("EVAL", "return redis.call('GET', KEYS[1])", "1", f"samples:{OTHER}:ws_x:now"),
}
BEYOND_KEYS: tuple[tuple[str, ...], ...] = (
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("RANDOMKEY",),
    ("DBSIZE",),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("SWAPDB", "0", "1"),
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "maxmemory", "1"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "x", "on", "nopass", "~*", "+@all"),
    ("ACL", "GETUSER", "default"),
    ("ACL", "SAVE"),
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("CLIENT", "PAUSE", "1000"),
    ("CLIENT", "NO-EVICT", "on"),
    ("MONITOR",),
    ("DEBUG", "SLEEP", "1"),
    ("SCRIPT", "FLUSH"),
    ("SCRIPT", "KILL"),
    ("FUNCTION", "FLUSH"),
    ("SHUTDOWN",),
    ("SAVE",),
    ("BGREWRITEAOF",),
    ("REPLICAOF", "127.0.0.1", "1"),
    ("SYNC",),
    ("MIGRATE", "127.0.0.1", "1", "x", "0", "1"),
    ("MODULE", "LOAD", "/tmp/x.so"),
    ("SLOWLOG", "GET"),
    ("LATENCY", "RESET"),
    ("INFO",),
    ("SUBSCRIBE", redis_key("events_channel")),
    ("PSUBSCRIBE", "*"),
    ("PUBSUB", "CHANNELS"),
    ("AUTH", OTHER, "x"),
    ("EVAL", "return redis.call('CONFIG', 'GET', '*')", "0"),
    ("EVAL", "return redis.call('KEYS', '*')", "0"),
)


@dataclass
class Member:
    id: str
    password: str

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(STATE / "redis.sock"), username=self.id, password=self.password)


@pytest.fixture
def member() -> Iterator[Member]:
    host = new_host_id()
    yield Member(host, create_redis_user(host))
    drop_redis_user(host)


def is_refused(client: redis.Redis, command: tuple[str, ...]) -> bool:
    try:
        client.execute_command(*command)
    except (redis.exceptions.NoPermissionError, redis.AuthenticationError):
        return True
    except redis.ResponseError as exc:  # in a script; commands that are switched off for all
        return any(words in str(exc) for words in ("ACL failure", "can't run", "permission", "not allowed"))
    return False


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_key_of_others_is_refused(member: Member, name: str) -> None:
    command, *arguments = OF_OTHERS[name]
    place = 2 if command == "EVAL" else 0
    arguments[place] = redis_key(arguments[place])
    with member.client() as client:
        assert is_refused(client, (command, *arguments))


@pytest.mark.parametrize("command", BEYOND_KEYS, ids=" ".join)
def test_what_is_about_the_server_is_refused(member: Member, command: tuple[str, ...]) -> None:
    with member.client() as client:
        assert is_refused(client, command)


def test_a_password_is_needed_and_another_one_replaces_it(member: Member) -> None:
    with Member(member.id, "").client() as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    renewed = create_redis_user(member.id)
    with member.client() as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    with Member(member.id, renewed).client() as client:
        assert client.ping()


def test_the_file_has_hashes_and_brings_the_users_back(member: Member) -> None:
    text = (STATE / "redis-users.acl").read_text()
    assert f"user {member.id} on " in text
    assert member.password not in text
    redis_client().execute_command("ACL", "LOAD")  # as a start does
    with member.client() as client:
        assert client.ping()


def test_a_dropped_user_is_cut_off_at_once(member: Member) -> None:
    with member.client() as client:
        assert client.ping()
        drop_redis_user(member.id)
        with pytest.raises((redis.ConnectionError, redis.AuthenticationError)):
            client.ping()
    assert member.id not in list_redis_users()
    assert member.id not in (STATE / "redis-users.acl").read_text()


@pytest.mark.parametrize("name", ["default", "", "host_x", f"{OTHER} nopass"])
def test_no_other_user_is_made_or_dropped(name: str) -> None:
    for act in (create_redis_user, drop_redis_user):
        with pytest.raises(ValueError, match="is not the id of a host"):
            act(name)


def test_what_a_host_counts_is_added(member: Member) -> None:
    counters.Counter("of_this_test", "A count.", ("what",))
    for host in ("", member.id):
        redis_client().hincrbyfloat(counters._key_of(host), "of_this_test|x", 2)
    assert counters.read_values([member.id])["of_this_test"] == {("x",): 4}
    redis_client().delete(counters._key_of(""), counters._key_of(member.id))


@pytest.mark.parametrize(
    ("channel", "data", "heard"),
    [
        ("{host}:log:ws_x:boot", "{}", True),
        ("log:ws_x:cmd", "{}", False),
        (f"{OTHER}:log:ws_x:boot", "{}", False),
    ],
)
def test_a_host_speaks_for_itself_alone(member: Member, channel: str, data: str, heard: bool) -> None:
    name = channel.format(host=member.id)
    hub: Any = Hub(None)  # type: ignore[arg-type]
    hub.listeners_by_channel = {name: set()}
    delivered: list[str] = []
    hub.add_to_queues = lambda channel, event: delivered.append(channel)
    text = f'{{"channel": "{name}", "event_type": "message", "data": "{data}", "pub_id": "00000000-1"}}'
    hub._deliver({"channel": redis_key(f"events_channel:{member.id}").encode(), "data": text.encode()})
    hub._deliver({"channel": redis_key(f"events_channel:{member.id}").encode(), "data": b"no JSON"})
    assert delivered == ([name] if heard else [])
    assert Channel(name, host=member.id).pubsub == redis_key(f"events_channel:{member.id}")
    assert settings.REDIS_PREFIX
