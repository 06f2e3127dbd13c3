"""The event channel of each log: how lines become events, and what a clear does to those who read."""

from __future__ import annotations

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
from workspaces.logs.follow import LogChanges, LogPosition
from workspaces.logs.lines import log_entry
from workspaces.logs.sources import LogSource

logger = logging.getLogger(__name__)


def log_channel(workspace_id: str, source: str) -> Channel:
    return Channel(f"log:{workspace_id}:{source}")


def log_events(look: LogChanges, source: LogSource, *, live: bool) -> list[tuple[str, str]]:
    """Events of what a look found. A line without a time that came while somebody followed has that of the look."""
    now = iso(datetime.now(UTC)) if live else None
    gap = [(GAP, one_line({"gap": True}))] if look.gap else []
    shown = [log_entry(line, source.name, console=source.is_console, now=now) for line in look.lines]
    return gap + [(MESSAGE, one_line(one)) for one in shown]


@contextmanager
def cleared_on_commit(workspace_id: str, sources: Iterable[str]) -> Iterator[None]:
    """While logs are being emptied nobody reads them for streams; then open streams get `{"cleared": true}`.

    If the body fails, streams are told of a gap instead; within a transaction they are told with its commit. Without
    Redis nobody can be told, and the logs are cleared all the same: streams begin anew when it is back.
    """
    channels = [log_channel(workspace_id, source) for source in sources]
    _each(channels, pause_channel)
    try:
        yield
    except BaseException:
        _each(channels, drop_channel)
        raise
    transaction.on_commit(lambda: _each(channels, _tell))


def _tell(client: redis.Redis, channel: Channel) -> None:
    restart_channel(client, channel, MESSAGE, one_line({"cleared": True}), str(LogPosition()))


def _each(channels: list[Channel], do: Callable[[redis.Redis, Channel], None]) -> None:
    try:
        for channel in channels:
            do(redis_client(), channel)
    except (redis.RedisError, OSError) as exc:
        logger.warning("readers of logs cannot be told of a clear: %s", exc)
