"""Asking a workspace's host: a task on the host's queue, the answer through a Redis list that lives a minute."""

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

ANSWER_SECONDS = 10
KEEP_SECONDS = 60


def call(workspace: Workspace, task: str, *arguments: Any) -> bytes:
    """Ring for `task(workspace_id, key, *arguments)` and wait for what it answers to the key. Raises VMUnavailable."""
    if workspace.host is None:
        raise VMUnavailable("This workspace has no host.")
    queue, key = workspace.host.queue, redis_key(f"asked:{secrets.token_hex(16)}")
    release_connection()
    try:
        current_app.send_task(task, args=[workspace.pk, key, *arguments], queue=queue, expires=ANSWER_SECONDS)
        found: Any = blocking_client(ANSWER_SECONDS).blpop([key], timeout=ANSWER_SECONDS)
    except (redis.RedisError, OperationalError, OSError) as exc:
        raise VMUnavailable("The host of this workspace cannot be asked now; try again later.") from exc
    if found is None:
        raise VMUnavailable("The host of this workspace does not answer; try again later.")
    return bytes(found[1])


def reply(key: str, content: bytes) -> None:
    """vmhost's half."""
    with redis_client().pipeline() as pipe:
        pipe.rpush(key, content)
        pipe.expire(key, KEEP_SECONDS)
        pipe.execute()
