"""Tasks: commands that go on in a workspace without a connection, and keep what they have written: `ws tasks`."""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from typing import Annotated, Any, cast

import typer

from microvm.cli.arguments import OptionalWorkspace
from microvm.cli.output import Column
from microvm.cli.printable import size_text
from microvm.cli.session import Session, command, command_group
from microvm.sync.runtimes import OpenRuntime
from microvm.task_events import TaskExit, TaskGap, TaskOutput

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="Its number.")]
COLUMNS = (
    Column("Task", lambda row: row["id"]),
    Column("Status", lambda row: row["status"]),
    Column("Exit code", lambda row: row["exit_code"]),
    Column("Started", lambda row: (row["started_at"] or "")[:19].replace("T", " ")),
    Column("Command", lambda row: shlex.join(row["command"])),
)
FIELDS = (
    *COLUMNS[:3],
    Column("Error", lambda row: row.get("error")),
    Column("Pid", lambda row: row["guest_pid"]),
    Column("Created", lambda row: row["created_at"]),
    Column("Started", lambda row: row["started_at"]),
    Column("Ended", lambda row: row["exited_at"]),
    Column("Kept for", lambda row: f"{row['ttl_seconds']} s"),
    COLUMNS[4],
)


def add_task_commands(app: typer.Typer) -> None:
    group = command_group("tasks", "Commands of `ws exec --background`, which go on without a connection.", app)
    command(group, "list")(list_tasks)
    command(group, "show")(show_task)
    command(group, "logs")(show_task_logs)
    command(group, "kill")(kill_task)


def list_tasks(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """List the tasks of a workspace, the newest first."""
    rows = opened(session, session.workspace(workspace)).tasks.list()
    session.output.show_rows(COLUMNS, [dict(row) for row in rows], "No tasks. `ws exec --background` starts one.")


def show_task(session: Session, *, task: TaskId, workspace: OptionalWorkspace = None) -> None:
    """Show a task."""
    session.output.show_object(dict(opened(session, session.workspace(workspace)).tasks.get(task)), FIELDS)


def show_task_logs(
    session: Session,
    *,
    task: TaskId,
    workspace: OptionalWorkspace = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the task ends, and exit with its code.")
    ] = False,
) -> int:
    """Print what a task has written, byte for byte."""
    tasks = opened(session, session.workspace(workspace)).tasks
    if not follow:
        return _print_present(session, dict(tasks.get(task)))
    with closing(tasks.follow(task)) as events:
        for event in events:
            if isinstance(event, TaskOutput):
                _write(event.stream, event.data)
            elif isinstance(event, TaskGap):
                session.output.warn(f"{size_text(event.bytes)} of its output are gone.")
            elif isinstance(event, TaskExit):
                return _exit_code(session, event)
    return 1


def kill_task(session: Session, *, task: TaskId, workspace: OptionalWorkspace = None) -> None:
    """Kill a task, with all that it has started, and forget it."""
    removed = opened(session, session.workspace(workspace)).tasks.remove(task)
    session.output.show_result(dict(removed), f"Task {task} is gone.")


def start_background(session: Session, workspace: str, body: dict[str, Any]) -> None:
    """Start a task and print its number; `body` as of a command, without a deadline."""
    request = {key: value for key, value in body.items() if key != "timeout_seconds"}
    request |= {"exec_mode": "direct", "ttl_seconds": 86_400}
    task = opened(session, workspace).tasks.start(**cast(Any, request))
    session.output.show_result({"success": True, "task_id": task}, task)
    session.output.say(f"`ws tasks logs -f {task} {workspace}` has its output, `ws tasks kill {task}` ends it.")


def opened(session: Session, workspace: str) -> OpenRuntime:
    """Return the inside of a workspace, which is switched on if it is off."""
    return session.client.runtime(workspace, enable=True)


def _print_present(session: Session, task: dict[str, Any]) -> int:
    """Print the end of both outputs."""
    if session.output.as_json:
        session.output.show_json(task)
        return 0
    for name in ("stdout", "stderr"):
        _write(name, task[name].encode())
    if task["truncated"]:
        session.output.warn("The task has written more than is shown: `-f` prints all that is kept.")
    return 0


def _write(stream: str, data: bytes) -> None:
    sink = sys.stdout if stream == "stdout" else sys.stderr
    sink.buffer.write(data)
    sink.flush()


def _exit_code(session: Session, end: TaskExit) -> int:
    if end.status == "failed":
        session.output.warn(f"The task has failed: {end.error or 'it was killed at its deadline'}.")
    return end.exit_code if end.exit_code >= 0 else 1
