"""Tasks in one workspace, with a token of its runtime.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class TasksResponse(TypedDict):
    """Answer, or a part of one, of `runtime_tasks.list`."""

    tasks: list[TaskShort]


class TaskShort(TypedDict):
    """Answer, or a part of one, of `runtime_tasks.list`."""

    id: str
    command: list[str]
    status: str
    guest_pid: int
    exit_code: int | None
    log_truncated: bool
    error: NotRequired[str]
    timed_out: bool
    created_at: str | None
    started_at: str | None
    exited_at: str | None
    ttl_seconds: int


class RunTaskRequest(TypedDict):
    """Body, or a part of it, of `runtime_tasks.run`."""

    cmd: list[str] | str
    exec_mode: NotRequired[Literal["auto", "shell", "direct"]]
    ttl_seconds: NotRequired[int]
    keep_logs: NotRequired[bool]
    env: NotRequired[dict[str, str]]
    working_dir: NotRequired[str | dict[str, Any]]
    user: NotRequired[str]
    timeout_seconds: NotRequired[float]


class TaskResponse(TypedDict):
    """Answer, or a part of one, of `runtime_tasks.run`."""

    id: str
    command: list[str]
    status: str
    guest_pid: int
    exit_code: int | None
    log_truncated: bool
    error: NotRequired[str]
    timed_out: bool
    created_at: str | None
    started_at: str | None
    exited_at: str | None
    ttl_seconds: int
    stdout: str
    stderr: str
    truncated: bool


class TasksRemovedResponse(TypedDict):
    """Answer, or a part of one, of `runtime_tasks.remove_all`."""

    deleted: int


class TaskRemovedResponse(TypedDict):
    """Answer, or a part of one, of `runtime_tasks.remove`."""

    message: str
    task: TaskShort


class FollowedTaskRequest(TypedDict):
    """Body, or a part of it, of `runtime_tasks.start`."""

    cmd: list[str] | str
    exec_mode: NotRequired[Literal["auto", "shell", "direct"]]
    ttl_seconds: NotRequired[int]
    keep_logs: NotRequired[bool]
    env: NotRequired[dict[str, str]]
    working_dir: NotRequired[str | dict[str, Any]]
    user: NotRequired[str]
    timeout_seconds: NotRequired[float]


class TaskInputResponse(TypedDict):
    """Answer, or a part of one, of `runtime_tasks.give_input`."""

    bytes_written: int
