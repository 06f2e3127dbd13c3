"""Calls to a workspace's host: a task on the host's queue, the reply through a Redis list that expires."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import redis
from celery import current_app
from kombu.exceptions import OperationalError

from common.async_threads import in_pool_thread
from common.connections import release_connection
from common.errors import VMUnavailable
from common.redis import blocking_client, open_async_client, redis_client, redis_key
from workspaces.models import Workspace

REPLY_SECONDS = 10
SLACK_SECONDS = 5
EXPIRY_SECONDS = 60
UNREACHABLE = (redis.RedisError, OperationalError, OSError)
NOT_SENT = "The host of this workspace cannot be reached now; try again later."


def call(workspace: Workspace, task: str, *arguments: Any) -> bytes:
    """Send `task(workspace_id, key, *arguments)` and wait for its reply. Raise VMUnavailable."""
    if workspace.host is None:
        raise VMUnavailable("This workspace has no host.")
    return call_host(workspace.host.queue, task, workspace.pk, *arguments)


def call_host(queue: str, task: str, workspace_id: str, *arguments: Any) -> bytes:
    """Do what `call` does, with the host of this queue, which need not be that of the workspace."""
    key = _reply_key(queue)
    release_connection()
    try:
        _send(queue, task, workspace_id, key, *arguments)
        received: Any = blocking_client(REPLY_SECONDS).blpop([key], timeout=REPLY_SECONDS)
    except UNREACHABLE as exc:
        raise VMUnavailable(NOT_SENT) from exc
    return _content(received)


def send_unanswered(queue: str, task: str, workspace_id: str, *arguments: Any) -> None:
    """Send a task to the host with this queue, without waiting for a reply. Raise VMUnavailable if it was not sent."""
    try:
        _send(queue, task, workspace_id, _reply_key(queue), *arguments)
    except UNREACHABLE as exc:
        raise VMUnavailable(NOT_SENT) from exc


async def acall(queue: str, task: str, workspace_id: str, *arguments: Any) -> bytes:
    """Do what `call` does, with the host of this queue, for an event loop: the wait takes no thread. Raise
    VMUnavailable.
    """
    key = _reply_key(queue)
    try:
        await in_pool_thread(_send, queue, task, workspace_id, key, *arguments)
        # The connection is not from a pool: a caller that is cancelled would leave it in the middle of a reply.
        async with asyncio.timeout(REPLY_SECONDS + SLACK_SECONDS), open_async_client() as client:
            received: Any = await client.blpop([key], timeout=REPLY_SECONDS)
    except UNREACHABLE as exc:
        raise VMUnavailable(NOT_SENT) from exc
    return _content(received)


def _send(queue: str, task: str, *arguments: Any) -> None:
    current_app.send_task(task, args=list(arguments), queue=queue, expires=REPLY_SECONDS)


def _reply_key(queue: str) -> str:
    """Return a key that the host with this queue may write, and no other host."""
    return redis_key(f"rpc:{queue.removeprefix('host.')}:{secrets.token_hex(16)}")


def _content(received: Any) -> bytes:
    if received is None:
        raise VMUnavailable("The host of this workspace does not answer; try again later.")
    return bytes(received[1])


def reply(key: str, content: bytes) -> None:
    """Send the reply; called in vmhost."""
    with redis_client().pipeline() as pipe:
        pipe.rpush(key, content)
        pipe.expire(key, EXPIRY_SECONDS)
        pipe.execute()
