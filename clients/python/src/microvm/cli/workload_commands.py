"""Workloads: programs that the workspace keeps running, also after its restart and without a connection."""

from __future__ import annotations

import re
import shlex
from posixpath import basename
from secrets import token_hex
from typing import Annotated, Any, Literal, cast

import typer

from microvm.cli.arguments import Environment, FirstWorkspace, OptionalWorkspace, env_entries
from microvm.cli.output import Column
from microvm.cli.session import Session, command, command_group
from microvm.cli.usage import PASSED_ON, ProgramCommand
from microvm.types.workloads import WorkloadChangedResponse
from microvm.types.workspaces import WorkloadRequest

Restart = Literal["never", "on-failure", "always"]
WorkloadName = Annotated[str, typer.Argument(metavar="NAME", help="Of the workload.")]
COLUMNS = (
    Column("Name", lambda row: row["name"]),
    Column("Status", lambda row: row["status"]),
    Column("Pid", lambda row: row["pid"]),
    Column("Exit code", lambda row: row["exit_code"]),
    Column("Restarts", lambda row: row["restarts"]),
    Column("Restart", lambda row: row["restart_policy"]),
    Column("Command", lambda row: shlex.join(row["cmd"] or [])),
)


def add_workload_commands(app: typer.Typer) -> None:
    group = command_group(
        "workload", "Programs that go on without a connection, and are started with the workspace.", app
    )
    command(group, "add", cls=ProgramCommand, context_settings=PASSED_ON)(add_workload)
    command(group, "list")(list_workloads)
    command(group, "show")(show_workload)
    command(group, "start")(start_workload)
    command(group, "stop")(stop_workload)
    command(group, "rm")(remove_workload)


def add_workload(
    session: Session,
    *,
    name: WorkloadName,
    workspace: FirstWorkspace,
    program: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="A program and its arguments, without a shell.")
    ],
    env: Environment = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-C", help="Where it runs.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="As whom it runs.")] = None,
    restart: Annotated[Restart, typer.Option("--restart", help="When it is started again.")] = "always",
) -> None:
    """Start a program that lasts: it goes on without `ws`, and is started with the workspace. `ws logs -s NAME` has its
    output.
    """
    words = program[1:] if program[0] == "--" else program
    body = workload_body(name, words, env=env, cwd=cwd, user=user, restart=restart)
    changed = session.client.workloads.create(session.workspace(workspace), **body)
    show_change(session, changed, f"{name} is {changed['workload']['status']}.")


def list_workloads(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """List the workloads of a workspace."""
    rows = session.client.workloads.list(session.workspace(workspace))
    none = "No workloads. `ws workload add NAME WORKSPACE COMMAND` makes one."
    session.output.show_rows(COLUMNS, [dict(row) for row in rows], none)


def show_workload(session: Session, *, name: WorkloadName, workspace: OptionalWorkspace = None) -> None:
    """Show a workload."""
    session.output.show_object(session.client.workloads.get(session.workspace(workspace), name), COLUMNS)


def start_workload(session: Session, *, name: WorkloadName, workspace: OptionalWorkspace = None) -> None:
    """Start a workload that has ended or was stopped."""
    found = session.client.workloads.start(session.workspace(workspace), name)
    session.output.show_result(found, f"{name} is {found['status']}.")


def stop_workload(session: Session, *, name: WorkloadName, workspace: OptionalWorkspace = None) -> None:
    """End a workload until it is started by hand, or until the next start of the workspace."""
    found = session.client.workloads.stop(session.workspace(workspace), name)
    session.output.show_result(found, f"{name} is {found['status']}.")


def remove_workload(session: Session, *, name: WorkloadName, workspace: OptionalWorkspace = None) -> None:
    """End and remove a workload; its log stays."""
    changed = session.client.workloads.delete(session.workspace(workspace), name)
    show_change(session, changed, f"{name} is removed.")


def start_detached(session: Session, workspace: str, body: dict[str, Any]) -> None:
    """Start a program as a workload that is not started again; `body` as of a command."""
    words = body["cmd"]
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", basename(words[0])).strip("_.-")[:40] or "program"
    name = f"{stem}-{token_hex(3)}"
    given = {key: body[key] for key in ("working_dir", "user") if key in body}
    env = [f"{key}={value}" for key, value in body.get("env", {}).items()]
    request = workload_body(name, words, env=env, restart="never") | cast(WorkloadRequest, given)
    changed = session.client.workloads.create(workspace, **request)
    show_change(session, changed, name)
    session.output.say(f"`ws logs -s {name}` has its output, `ws workload rm {name}` ends and removes it.")


def workload_body(
    name: str,
    words: list[str],
    *,
    restart: Restart,
    env: list[str] | None = None,
    cwd: str | None = None,
    user: str | None = None,
) -> WorkloadRequest:
    """Raises CommandError for what is no variable."""
    body: dict[str, Any] = {"name": name, "cmd": words, "restart_policy": restart}
    if env:
        body["env"] = env_entries(env)
    body |= {key: value for key, value in (("working_dir", cwd), ("user", user)) if value is not None}
    return cast(WorkloadRequest, body)


def show_change(session: Session, changed: WorkloadChangedResponse, text: str) -> None:
    """Print the change, and a warning if the guest does not know it yet."""
    session.output.show_result(changed, text)
    if changed["problem"]:
        session.output.warn(f"It is saved, and not carried out yet: {changed['problem']}")
