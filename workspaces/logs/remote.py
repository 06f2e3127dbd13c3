"""Asking a host for a log: a task on the host's queue, the answer through a Redis list that lives a minute.

Logs are where the machines are, and the api process may be on another machine. Only the tail travels.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import redis
from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError

from common.connections import release_connection
from common.errors import VMUnavailable
from workspaces.models import Workspace

TASK = "workspaces.tasks.send_boot_log"
ANSWER_SECONDS = 10
KEEP_SECONDS = 60
MAX_BYTES = 1 << 20


def boot_log(workspace: Workspace, lines: int) -> list[str]:
    """The last lines of the console log, empty where the machine has not written any. Raises VMUnavailable."""
    if workspace.host is None:
        return []
    release_connection()
    key = f"log:{secrets.token_hex(16)}"
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=ANSWER_SECONDS + 5) as client:
            current_app.send_task(TASK, args=[workspace.pk, key], queue=workspace.host.queue, expires=ANSWER_SECONDS)
            answer = client.blpop([key], timeout=ANSWER_SECONDS)
    except (redis.RedisError, OperationalError, OSError) as exc:
        raise VMUnavailable("The log cannot be fetched now; try again later.") from exc
    if answer is None:
        raise VMUnavailable("The host of this workspace does not answer; try again later.")
    return split_lines(answer[1], lines)


def send(path: Path, key: str) -> None:
    """vmhost's half: put the tail where the asker waits."""
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=5) as client, client.pipeline() as pipe:
        pipe.rpush(key, tail(path, MAX_BYTES))
        pipe.expire(key, KEEP_SECONDS)
        pipe.execute()


def tail(path: Path, size: int) -> bytes:
    """The last bytes of a file, from the start of a line; nothing where there is no file."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - size))
            found = file.read(size)
    except FileNotFoundError:
        return b""
    return found.split(b"\n", 1)[-1] if end > size else found


def split_lines(raw: bytes, lines: int) -> list[str]:
    """Console output as text: bytes that are no UTF-8 replaced, terminal line ends removed."""
    text = raw.decode("utf-8", errors="replace").replace("\r\n", "\n")
    return [line.rstrip("\r") for line in text.split("\n") if line][-lines:]
