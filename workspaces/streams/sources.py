"""The writers of a workspace's channels. Each runs in one process at a time, however many clients read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from common.errors import VMUnavailable
from common.sse.batch import Batch, seconds_to_next
from common.sse.frames import MESSAGE, one_line
from common.sse.leaders import Source
from common.sse.replay import Channel, ReplayBuffer
from common.sse.runtime import in_thread
from vmbackend.backend import guest_pool
from vmbackend.errors import BackendError, GuestPathInvalid, GuestPathNotFound
from vmbackend.guest.session import GuestAddress
from vmbackend.guest.workloads import WorkloadUsage, measure_workloads
from workspaces.errors import VmNotRunning
from workspaces.grants import batches
from workspaces.guests import address_of
from workspaces.host_away import with_host
from workspaces.logs import guest_logs
from workspaces.logs.channels import log_channel
from workspaces.logs.console_readers import WATCH_SECONDS, announce_reader
from workspaces.logs.publish import LogPublisher
from workspaces.logs.sources import OLD_FILES, LogSource, rotated_name
from workspaces.metrics.selectors import percentages, stats_of
from workspaces.models import Workspace
from workspaces.selectors import SHOWN
from workspaces.workload_changes.usage import stats_of_usage

POLL_SECONDS = 0.5
BUSY_SECONDS = 0.25
# Seconds between two announcements of a console's reader, plus up to one more.
HOST_SECONDS = WATCH_SECONDS / 3
# How long a guest is read before its row is read again, which also records that the workspace is in use.
RECHECK_SECONDS = 20.0
RETRY_SECONDS = 1.0
CALL_SECONDS = 10.0


def stats_channel(workspace_id: str) -> Channel:
    """Return the channel of statistics. It holds the last minute: one event a second, of about 470 bytes."""
    return Channel(f"stats:{workspace_id}", max_events=60, max_bytes=48 * 1024, ttl=60)


def stats_source(workspace_id: str) -> Source:
    """Return the source of the stats object once a second, with `cpu_usage`, `memory_usage` and `disk_usage` beside its
    fields.
    """

    async def run(replay: ReplayBuffer) -> None:
        channel = stats_channel(workspace_id)
        position = await replay.position(channel)
        loop = asyncio.get_running_loop()
        while True:
            stats = await _STATS.get(workspace_id)
            if stats is not None:
                following = str(int(position or 0) + 1)
                events = [(MESSAGE, one_line(stats))]
                await replay.append(channel, events, expected=position, position=following)
                position = following
            await asyncio.sleep(seconds_to_next(loop.time()))

    return run


def _stats(ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    # Without the encrypted columns, whose decryption costs more than everything else.
    rows = Workspace.objects.only(*SHOWN)
    return {row.pk: _event_of(row) for part in batches(ids) for row in rows.filter(pk__in=part)}


def _event_of(workspace: Workspace) -> dict[str, Any]:
    """Return the stats object, and the percentages under the names that some clients read."""
    stats = stats_of(workspace)
    return {**stats, **percentages(stats)}


def workloads_channel(workspace_id: str) -> Channel:
    """Return the channel of workloads: an event a second for each, of about 110 bytes and its name."""
    return Channel(f"workloads:{workspace_id}", max_events=600, max_bytes=96 * 1024, ttl=60)


def workloads_source(workspace_id: str) -> Source:
    """Return the source of the usage of each workload of a running guest, once a second."""

    async def run(replay: ReplayBuffer) -> None:
        channel = workloads_channel(workspace_id)
        while True:
            address = await in_thread(_address, workspace_id)
            if address is not None:
                await _measure(replay, channel, address)
            await replay.extend_ttl(channel)
            if address is None:
                await asyncio.sleep(RETRY_SECONDS)

    return run


async def _measure(replay: ReplayBuffer, channel: Channel, address: GuestAddress) -> None:
    """Measure for RECHECK_SECONDS, or until the guest does not answer."""
    loop = asyncio.get_running_loop()
    until, before = loop.time() + RECHECK_SECONDS, dict[str, WorkloadUsage]()
    position = await replay.position(channel)
    while loop.time() < until:
        await asyncio.sleep(seconds_to_next(loop.time()))
        try:
            found = await guest_pool().acall(address, measure_workloads, CALL_SECONDS)
        except BackendError:
            await asyncio.sleep(RETRY_SECONDS)
            return
        events = [{"id": name, **stats_of_usage(each, before.get(name))} for name, each in found.items()]
        following = str(int(position or 0) + 1)
        shown = [(MESSAGE, one_line(event)) for event in events]
        await replay.append(channel, shown, expected=position, position=following)
        before, position = found, following


def boot_source(workspace_id: str, wrote: str) -> Source:
    """Return a source that tells the workspace's host that the console has a reader; that host's vmhost writes the
    channel. `wrote`: the host whose channel is read.
    """

    async def run(replay: ReplayBuffer) -> None:
        loop = asyncio.get_running_loop()
        while True:
            host = await _HOSTS.get(workspace_id)
            if host is not None:
                await announce_reader(replay.client, host, workspace_id)
            await replay.extend_ttl(log_channel(workspace_id, "boot", wrote))
            await asyncio.sleep(seconds_to_next(loop.time()) + (HOST_SECONDS if host else 0))

    return run


def _hosts(ids: Sequence[str]) -> dict[str, str | None]:
    rows = Workspace.objects.values_list("pk", "host_id")
    return {pk: host for part in batches(ids) for pk, host in rows.filter(pk__in=part)}


def guest_source(workspace_id: str, source: LogSource) -> Source:
    """Return the source of a log inside the guest, followed while the workspace runs, and again after its next
    start.
    """

    async def run(replay: ReplayBuffer) -> None:
        channel = log_channel(workspace_id, source.name)
        while True:
            address = await in_thread(_address, workspace_id)
            if address is not None:
                files = GuestFiles(address, source)
                await _follow(LogPublisher(replay, channel, source, files))
            await replay.extend_ttl(channel)
            if address is None:
                await asyncio.sleep(RETRY_SECONDS)

    return run


async def _follow(publisher: LogPublisher) -> None:
    """Follow for RECHECK_SECONDS, or until the guest does not answer."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RECHECK_SECONDS
    while loop.time() < until:
        try:
            is_new = await publisher.step()
        except BackendError:
            await asyncio.sleep(RETRY_SECONDS)
            return
        await asyncio.sleep(BUSY_SECONDS if is_new else POLL_SECONDS)


def _address(workspace_id: str) -> GuestAddress | None:
    columns = ("status", "ip", "control_port", "ssh_host_key")
    workspace = with_host(Workspace.objects.only(*columns)).filter(pk=workspace_id).first()
    try:
        return address_of(workspace) if workspace is not None else None
    except (VmNotRunning, VMUnavailable):
        return None


class GuestFiles:
    """The files of a log inside a guest, for a follower."""

    oldest = OLD_FILES

    def __init__(self, address: GuestAddress, source: LogSource) -> None:
        self.log_format = source.log_format
        self._address = address
        self._path = source.path or ""

    async def size(self, age: int) -> int | None:
        path = rotated_name(self._path, age)
        try:
            found = await guest_pool().acall(self._address, lambda session: session.stat(path), CALL_SECONDS)
        except (GuestPathNotFound, GuestPathInvalid):
            return None
        return found.size if found.type == "file" else None

    async def read(self, age: int, offset: int, length: int) -> bytes:
        path = rotated_name(self._path, age)
        return await guest_pool().acall(
            self._address, lambda session: guest_logs.read_log(session, path, offset, length), CALL_SECONDS
        )


_STATS = Batch(_stats)
_HOSTS = Batch(_hosts)
