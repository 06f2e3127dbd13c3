"""Event channel of each log: how lines become events, and the events that readers get when a log is cleared."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import redis
from django.db import transaction

from common.redis import redis_client
from common.sse.frames import GAP, MESSAGE, one_line
from common.sse.replay import Channel, drop_channel, pause_channel, restart_channel
from common.times import iso
from workspaces.logs.follow import LogChanges
from workspaces.logs.lines import log_entry
from workspaces.logs.position import LogPosition
from workspaces.logs.sources import BOOT, LogSource

logger = logging.getLogger(__name__)


def log_channel(workspace_id: str, source: str, host: str = "") -> Channel:
    """Return the channel of a log; `host`: that which writes it, as it does a console's."""
    return Channel(f"{host}:log:{workspace_id}:{source}" if host else f"log:{workspace_id}:{source}", host=host)


def log_events(changes: LogChanges, source: LogSource, *, live: bool) -> list[tuple[str, str]]:
    """Return the events of new lines. With `live`, a line without a time gets the present one: it was written
    just now.
    """
    now = iso(datetime.now(UTC)) if live else None
    gap = [(GAP, one_line({"gap": True}))] if changes.gap else []
    entries = [log_entry(line, source.name, now=now) for line in changes.lines]
    return gap + [(MESSAGE, one_line(entry)) for entry in entries]


def output_of_entry(data: str) -> str:
    """Return the data of an event as the streams of workloads show it: `data`, `stream`, `timestamp` of a line."""
    entry = json.loads(data)
    if "line" not in entry:
        return data
    return one_line({"data": entry["line"], "stream": entry["stream"], "timestamp": entry["timestamp"]})


@contextmanager
def cleared_on_commit(workspace_id: str, sources: Iterable[str], host: str) -> Iterator[None]:
    """Pause the event streams of logs while they are being emptied; then open streams get `{"cleared": true}`.

    If the body fails, streams get a gap instead; within a transaction they get the event with its commit. Without Redis
    no stream gets an event, and the logs are cleared nevertheless: streams start from the beginning when it is back.
    `host` writes the console's.
    """
    channels = [log_channel(workspace_id, source, host if source == BOOT else "") for source in sources]
    _each(channels, pause_channel)
    try:
        yield
    except BaseException:
        _each(channels, drop_channel)
        raise
    transaction.on_commit(lambda: _each(channels, _publish_cleared))


def _publish_cleared(client: redis.Redis, channel: Channel) -> None:
    restart_channel(client, channel, MESSAGE, one_line({"cleared": True}), str(LogPosition()))


def _each(channels: list[Channel], action: Callable[[redis.Redis, Channel], None]) -> None:
    try:
        for channel in channels:
            action(redis_client(), channel)
    except (redis.RedisError, OSError) as exc:
        logger.warning("event streams cannot be notified of cleared logs: %s", exc)
