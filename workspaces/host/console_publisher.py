"""Publishing console logs: vmhost writes the event channels of the console logs that have readers.

The logs to publish are a sorted set in Redis, one for each host: workspace id -> expiry. Streams processes renew their
members, so a restarted vmhost finds them, and a reader that dies needs no clean-up.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from redis import RedisError

from common.redis import open_async_client
from common.sse.calls import bounded_call
from common.sse.replay import ReplayBuffer
from vmbackend.bootlog import rotated_path
from workspaces.logs.channels import log_channel
from workspaces.logs.console_readers import readers_key, redis_time
from workspaces.logs.lines import LogFormat
from workspaces.logs.publish import LogPublisher
from workspaces.logs.sources import BOOT, LogSource

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.25
REFRESH_SECONDS = 1.0


class ConsoleFiles:
    """A console log's two files as a follower reads them. A file that cannot be read counts as missing."""

    oldest = 1
    log_format = LogFormat.CONSOLE

    def __init__(self, path: Path) -> None:
        self._paths = (path, rotated_path(path))

    async def size(self, age: int) -> int | None:
        try:
            return self._paths[age].stat().st_size
        except OSError:
            return None

    async def read(self, age: int, offset: int, length: int) -> bytes:
        try:
            with self._paths[age].open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError:
            return b""


class ConsolePublisher:
    """A thread with an event loop of its own. Without readers it only reads Redis once a second."""

    def __init__(self, host: str, path_of: Callable[[str], Path]) -> None:
        self._host = host
        self._path_of = path_of
        self._publishers: dict[str, LogPublisher] = {}
        self._refreshed_at = 0.0
        self._thread: threading.Thread | None = None
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="vmhost-console-logs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. The position of each log is in its replay buffer."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
            thread.join(timeout=10)

    def _run(self) -> None:
        self._task = self._loop.create_task(self._work())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _work(self) -> None:
        async with open_async_client() as client:
            replay = ReplayBuffer(client)
            while True:
                try:
                    await self._publish_once(replay)
                except (RedisError, OSError) as exc:
                    logger.warning("console logs cannot be published: %s", exc)
                    await asyncio.sleep(REFRESH_SECONDS)
                except Exception:  # one broken log must not end the thread
                    logger.exception("console logs cannot be published")
                    await asyncio.sleep(REFRESH_SECONDS)
                await asyncio.sleep(POLL_SECONDS if self._publishers else REFRESH_SECONDS)

    async def _publish_once(self, replay: ReplayBuffer) -> None:
        if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            await self._refresh(replay)
        for publisher in self._publishers.values():
            await publisher.step()

    async def _refresh(self, replay: ReplayBuffer) -> None:
        self._refreshed_at = time.monotonic()
        now = await redis_time(replay.client)
        await bounded_call(replay.client.zremrangebyscore(readers_key(self._host), "-inf", now))
        found = await bounded_call(replay.client.zrange(readers_key(self._host), 0, -1))
        watched = {bytes(name).decode() for name in found}  # type: ignore[arg-type]
        for gone in set(self._publishers) - watched:
            del self._publishers[gone]
        for new in watched - set(self._publishers):
            files = ConsoleFiles(self._path_of(new))
            self._publishers[new] = LogPublisher(replay, log_channel(new, BOOT, self._host), LogSource(BOOT), files)
