"""Start, stop, restart, pause, sleep, and what follows these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from microvm.cli.arguments import OptionalWorkspace
from microvm.cli.session import Session, command
from microvm.sync.client import Microvm
from microvm.types.workspaces import Workspace

Change = Callable[[Microvm, str], Workspace]


def add_power_commands(app: typer.Typer) -> None:
    command(app, "start")(start_workspace)
    command(app, "stop")(stop_workspace)
    command(app, "restart")(restart_workspace)
    command(app, "pause")(pause_workspace)
    command(app, "resume")(resume_workspace)
    command(app, "sleep")(sleep_workspace)
    command(app, "wake")(wake_workspace)


def start_workspace(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Start a workspace; a paused one goes on, a sleeping one wakes."""
    _change(session, workspace, "Starting", lambda client, found: client.workspaces.start(found))


def stop_workspace(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Shut a workspace down; its files are kept."""
    _change(session, workspace, "Stopping", lambda client, found: client.workspaces.stop(found))


def restart_workspace(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Shut a workspace down and start it, with the settings that were saved for it."""
    _change(session, workspace, "Restarting", lambda client, found: client.workspaces.restart(found))


def pause_workspace(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Let a workspace stand still: its memory stays where it is, and it goes on at once."""
    _change(session, workspace, "Pausing", lambda client, found: client.workspaces.pause(found))


def resume_workspace(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Let a paused workspace go on, or wake a sleeping one."""
    _change(session, workspace, "Resuming", lambda client, found: client.workspaces.resume(found))


def sleep_workspace(
    session: Session,
    *,
    workspace: OptionalWorkspace = None,
    when_idle: Annotated[
        str | None, typer.Option("--when-idle", help="Not now, but after so long without use, as 10m; 0: never.")
    ] = None,
) -> None:
    """Put a workspace to sleep: its memory is kept on disk, and a request to a public port wakes it."""
    if when_idle is None:
        _change(session, workspace, "Saving the memory", lambda client, found: client.workspaces.sleep(found))
        return
    policy = session.client.lifecycle.set_idle(session.workspace(workspace), suspend_after=when_idle)
    text = (
        f"It sleeps after {policy['suspend_after']} seconds without use." if policy["enabled"] else "It does not sleep."
    )
    session.output.show_result(policy, text)


def wake_workspace(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Wake a sleeping workspace, or let a paused one go on."""
    _change(session, workspace, "Waking", lambda client, found: client.workspaces.resume(found))


def _change(session: Session, workspace: str | None, text: str, change: Change) -> None:
    found = session.workspace(workspace)
    with session.output.step_progress() as show:
        show(text, 0)
        changed = change(session.client, found)
    session.output.show_result(changed, f"{changed['slug'] or changed['id']} is {changed['status']}.")
