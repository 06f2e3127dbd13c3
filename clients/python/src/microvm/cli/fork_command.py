"""Copies of a workspace as it is now: `ws fork`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from microvm.cli.arguments import (
    Environment,
    Memory,
    OptionalWorkspace,
    Permanent,
    TimeToLive,
    collect_fields,
    env_entries,
    require_one_life,
)
from microvm.cli.create_command import order_that_may_be_taken
from microvm.cli.failures import ExitCode
from microvm.cli.session import Session
from microvm.cli.workspace_commands import COLUMNS, SANDBOX_COLUMNS

MOST_COPIES = 16


def fork_workspace(
    session: Session,
    *,
    workspace: OptionalWorkspace = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=MOST_COPIES, help="How many copies.")] = 1,
    name: Annotated[
        str | None, typer.Option("--name", help="Their name, with a number if there are several; else the parent's.")
    ] = None,
    env: Environment = None,
    memory: Memory = None,
    ttl: TimeToLive = None,
    permanent: Permanent = False,
) -> int:
    """Make copies of a workspace as it is now, and wait for them. Their programs go on; each has an address, keys and
    tokens of its own. Variables are for programs that are started afterwards.
    """
    require_one_life(ttl, permanent=permanent)
    mode = "permanent" if permanent else None
    body = collect_fields(count=count, name=name, env=env_entries(env or []) or None, memory=memory, mode=mode, ttl=ttl)
    with session.output.step_progress() as show:
        show("Making the copies", 0)
        sandbox = session.sandbox(workspace)
        entries = _fork_sandbox(session, sandbox, body) if sandbox else _fork(session, workspace, body)
    return _show_copies(session, entries)


def _fork(session: Session, workspace: str | None, body: Any) -> Sequence[Mapping[str, Any]]:
    with order_that_may_be_taken(session):
        return session.client.snapshots.fork(session.reference(workspace), **body)


def _fork_sandbox(session: Session, sandbox: str, body: Any) -> Sequence[Mapping[str, Any]]:
    with order_that_may_be_taken(session):
        entries = session.client.sandboxes.fork(sandbox, **body)
    for entry in entries:
        if "sandbox" in entry:
            session.remember_token(entry["sandbox"])
    return entries


def _show_copies(session: Session, entries: Sequence[Mapping[str, Any]]) -> int:
    """Print a row for each copy, and why others were not made. Return the exit code."""
    failed = [entry["error"] for entry in entries if "error" in entry]
    if session.output.as_json:
        session.output.show_json(list(entries))
        return ExitCode.FAILED if failed else 0
    is_sandbox = any("sandbox" in entry for entry in entries)
    rows = [entry.get("workspace") or entry["sandbox"] for entry in entries if "error" not in entry]
    session.output.show_rows(SANDBOX_COLUMNS if is_sandbox else COLUMNS, rows)
    for error in failed:
        shown = (error.get("details") or {}).get("id", "A copy")
        session.output.warn(f"{shown} was not made: {error['message']} `ws rm` removes what is left of it.")
    return ExitCode.FAILED if failed else 0
