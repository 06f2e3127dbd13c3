"""Asking a host how one of its machines is: a task on the host's queue, the answer through a Redis list.

Only the host's vmhost may speak to its hypervisor.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, is_dataclass
from typing import Any

import redis
from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError

from common.connections import release_connection
from common.errors import VMUnavailable
from common.times import from_epoch, iso
from vmbackend.driver import Driver, MachineState
from vmbackend.errors import BackendError, MachineNotFound
from workspaces.models import Workspace

TASK = "workspaces.tasks.answer_machine_info"
ANSWER_SECONDS = 10
KEEP_SECONDS = 60
UP = (MachineState.RUNNING, MachineState.PAUSED)


def machine_info(workspace: Workspace) -> dict[str, Any]:
    """What the host says of the machine; `absent` for a workspace without a host. Raises VMUnavailable."""
    if workspace.host is None:
        return {"state": MachineState.ABSENT.value, "machine": None, "counters": None}
    queue, key = workspace.host.queue, f"info:{secrets.token_hex(16)}"
    release_connection()
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=ANSWER_SECONDS + 5) as client:
            current_app.send_task(TASK, args=[workspace.pk, key], queue=queue, expires=ANSWER_SECONDS)
            answer = client.blpop([key], timeout=ANSWER_SECONDS)
    except (redis.RedisError, OperationalError, OSError) as exc:
        raise VMUnavailable("The machine cannot be looked at now; try again later.") from exc
    if answer is None:
        raise VMUnavailable("The host of this workspace does not answer; try again later.")
    told: dict[str, Any] = json.loads(answer[1])
    if "problem" in told:
        raise VMUnavailable(told["problem"])
    return told


def answer(driver: Driver, workspace_id: str, key: str) -> None:
    """vmhost's half: look, and put the answer where the asker waits."""
    told = json.dumps(_looked(driver, workspace_id), default=_plain)
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=5) as client, client.pipeline() as pipe:
        pipe.rpush(key, told)
        pipe.expire(key, KEEP_SECONDS)
        pipe.execute()


def _looked(driver: Driver, workspace_id: str) -> dict[str, Any]:
    try:
        state = driver.state(workspace_id)
        return {
            "state": state.value,
            "machine": _machine(driver, workspace_id),
            "counters": _counters(driver, workspace_id) if state in UP else None,
        }
    except BackendError as exc:
        return {"problem": exc.sentence}


def _machine(driver: Driver, workspace_id: str) -> object:
    """Its definition as far as it is the owner's business: nothing of the host's files."""
    try:
        definition = driver.definition(workspace_id)
    except MachineNotFound:
        return None
    return definition.get("machine", definition)


def _counters(driver: Driver, workspace_id: str) -> dict[str, Any] | None:
    sample = driver.samples([workspace_id]).get(workspace_id)
    if sample is None:
        return None
    told = asdict(sample)
    del told["run"]
    return {**told, "at": iso(from_epoch(sample.at))}


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
