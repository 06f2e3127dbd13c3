"""Readers of console logs: streams processes announce them, the host's publisher looks them up."""

from __future__ import annotations

from redis.asyncio import Redis

from common.redis import redis_key
from common.sse.calls import bounded_call

WATCH_SECONDS = 6.0


async def announce_reader(client: Redis, host: str, workspace_id: str) -> None:
    """Note that this console has a reader for the next WATCH_SECONDS."""
    await bounded_call(client.zadd(readers_key(host), {workspace_id: await redis_time(client) + WATCH_SECONDS}))


async def redis_time(client: Redis) -> float:
    """Return the seconds by the clock of Redis, as the clocks of two machines differ."""
    seconds, micros = await bounded_call(client.time())
    return float(seconds) + float(micros) / 1e6


def readers_key(host: str) -> str:
    return redis_key(f"boot-watched:{host}")
