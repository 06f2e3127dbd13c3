"""The user that a host has in Redis: its own queue, and the keys and channels that are its alone by their names.

A password is made here and told once; Redis has its hash, also in its file of users, from which it has them again
after a restart (supervise/processes.py). Commands are named one by one: none looks at keys that it does not name, none
is about other clients, other users or the server.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from common.redis import redis_client, redis_key

_HOST_ID = re.compile(r"host_[a-z2-7]{16}")
_COMMANDS = (
    *("auth", "hello", "ping", "echo", "quit", "reset", "select", "time", "client|setname"),
    *("get", "set", "mget", "del", "exists", "expire", "pexpire", "ttl", "type"),
    *("lpush", "rpush", "lpop", "rpop", "blpop", "brpop", "lrange", "ltrim", "llen", "lrem"),
    *("hget", "hgetall", "hset", "hdel", "hexists", "hincrbyfloat"),
    *("zadd", "zrem", "zrange", "zrevrangebyscore", "zrangebyscore", "zremrangebyscore", "zscore"),
    *("sadd", "srem", "smembers"),
    *("multi", "exec", "discard", "watch", "unwatch"),
    *("eval", "evalsha", "script|load", "script|exists", "publish"),
)


def own_keys(host_id: str) -> tuple[str, ...]:
    """Return the patterns of the keys that a host reads and writes. No id is the beginning of another one."""
    names = (
        f"host.{host_id}",
        f"host.{host_id}\x06\x16*",  # the queue, by priorities
        f"_kombu.binding.host.{host_id}",
        f"_kombu.binding_permanent.host.{host_id}",
        f"unacked.{host_id}",
        f"unacked_index.{host_id}",
        f"unacked_mutex.{host_id}",
        f"boot-watched:{host_id}",
        f"sse:{host_id}:*",
        f"samples:{host_id}:*",
        f"rpc:{host_id}:*",
        f"counters:{host_id}",
    )
    return tuple(redis_key(name) for name in names)


def rules_of(host_id: str, password_hash: str) -> list[str]:
    """Return the rules of a host's user, which replace all that it had."""
    keys = [f"~{key}" for key in own_keys(host_id)]
    # When a machine was used, its host must know.
    keys.append(f"%R~{redis_key('last-used:*')}")
    channels = [f"&{redis_key(f'events_channel:{host_id}')}"]
    # Whoever waits for an operation reads its row at each wake-up.
    wakes = f"(%W~{redis_key('operation:*')} +rpush +expire)"
    return ["reset", "on", f"#{password_hash}", *keys, *channels, *(f"+{name}" for name in _COMMANDS), wakes]


def create_redis_user(host_id: str) -> str:
    """Make the host's user, or give it another password. Return the password.

    Raise redis.RedisError, also if Redis keeps no file of users: it would have none of them after a restart; ValueError
    if the id is not a host's.
    """
    _require_host(host_id)
    password = secrets.token_urlsafe(32)
    _acl("SETUSER", host_id, *rules_of(host_id, hashlib.sha256(password.encode()).hexdigest()))
    _acl("SAVE")
    return password


def drop_redis_user(host_id: str) -> None:
    """Drop the host's user, which ends its connections, and what it has there. Without one nothing happens. Raise
    redis.RedisError, ValueError as `create_redis_user`.
    """
    _require_host(host_id)
    _acl("DELUSER", host_id)
    _acl("SAVE")
    client = redis_client()
    for pattern in own_keys(host_id):
        for key in client.scan_iter(pattern, count=1000):
            client.unlink(key)


def list_redis_users() -> set[str]:
    """Return the ids of the hosts that have a user. Raise redis.RedisError."""
    found: Any = _acl("USERS")
    return {name.decode() for name in found if _HOST_ID.fullmatch(name.decode())}


def _require_host(host_id: str) -> None:
    if not _HOST_ID.fullmatch(host_id):
        raise ValueError(f"{host_id!r} is not the id of a host.")


def _acl(*arguments: str) -> Any:
    client: Any = redis_client()
    return client.execute_command("ACL", *arguments)
