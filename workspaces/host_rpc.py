"""Calls to a workspace's host: a task on the host's queue, the reply through a Redis list that expires."""

from __future__ import annotations

import secrets
from typing import Any

import redis
from celery import current_app
from kombu.exceptions import OperationalError

from common.connections import release_connection
from common.errors import VMUnavailable
from common.redis import blocking_client, redis_client, redis_key
from workspaces.models import Workspace

REPLY_SECONDS = 10
EXPIRY_SECONDS = 60


def call(workspace: Workspace, task: str, *arguments: Any) -> bytes:
    """Send `task(workspace_id, key, *arguments)` and wait for its reply to the key. Raises VMUnavailable."""
    if workspace.host is None:
        raise VMUnavailable("This workspace has no host.")
    queue, key = workspace.host.queue, redis_key(f"rpc:{secrets.token_hex(16)}")
    release_connection()
    try:
        current_app.send_task(task, args=[workspace.pk, key, *arguments], queue=queue, expires=REPLY_SECONDS)
        received: Any = blocking_client(REPLY_SECONDS).blpop([key], timeout=REPLY_SECONDS)
    except (redis.RedisError, OperationalError, OSError) as exc:
        raise VMUnavailable("The host of this workspace cannot be reached now; try again later.") from exc
    if received is None:
        raise VMUnavailable("The host of this workspace does not answer; try again later.")
    return bytes(received[1])


def reply(key: str, content: bytes) -> None:
    """Send the reply; called in vmhost."""
    with redis_client().pipeline() as pipe:
        pipe.rpush(key, content)
        pipe.expire(key, EXPIRY_SECONDS)
        pipe.execute()
