"""Tasks as responses show them."""

from __future__ import annotations

from typing import Any

from vmbackend.guest.hold.task_record import TaskRecord
from workspaces.runtime.tasks.services import ShownTask


def short_fields(record: TaskRecord) -> dict[str, Any]:
    """Return the fields of `TaskShort`."""
    fields = {
        "id": str(record.id),
        "command": list(record.command),
        "status": record.status.name.lower(),
        "guest_pid": record.pid,
        "exit_code": record.exit_code,
        "log_truncated": record.log_truncated,
        "timed_out": record.timed_out,
        "created_at": record.created_at,
        "started_at": record.started_at,
        "exited_at": record.exited_at,
        "ttl_seconds": record.ttl,
    }
    return {**fields, "error": record.error} if record.error else fields


def task_fields(task: ShownTask) -> dict[str, Any]:
    """Return the fields of `TaskObject`."""
    outputs = {"stdout": task.stdout, "stderr": task.stderr, "truncated": task.truncated}
    return {**short_fields(task.record), **outputs}


def exit_fields(record: TaskRecord) -> dict[str, Any]:
    """Return the fields of the event `exit`."""
    code = -1 if record.exit_code is None else record.exit_code
    fields = {"exit_code": code, "pid": record.pid, "status": record.status.name.lower()}
    return {**fields, "error": record.error} if record.error else fields
