"""Snapshots, restores and forks: `ws snapshot`, `ws restore` and `ws fork`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, cast

import typer

from microvm.cli.arguments import (
    Confirmed,
    Memory,
    OptionalWorkspace,
    bounded_number,
    collect_fields,
    require_confirmation,
)
from microvm.cli.completion import workspace_names
from microvm.cli.create_command import order_that_may_be_taken
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.fork_command import fork_workspace
from microvm.cli.output import Column
from microvm.cli.printable import size_text
from microvm.cli.session import Session, command, command_group
from microvm.errors import MicrovmError

LONGEST_WAIT = 600.0  # seconds, of one request
_ID = re.compile(r"snap_[a-z0-9]{16}")
SnapshotName = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Id or name.")]
KeptFor = Annotated[str | None, typer.Option("--ttl", metavar="TIME", help="Delete it after so long, as 7d.")]
COLUMNS = (
    Column("Name", lambda row: row["name"]),
    Column("Status", lambda row: row["status"]),
    Column("Memory", lambda row: row["memory"]),
    Column("Size", lambda row: size_text(row["size_bytes"])),
    Column("Workspace", lambda row: row["workspace_id"]),
    Column("Created", lambda row: row["created_at"][:19].replace("T", " ")),
    Column("Id", lambda row: row["id"]),
)
FIELDS = (
    *COLUMNS[:2],
    Column("Id", lambda row: row["id"]),
    Column("Error", lambda row: (row["error"] or {}).get("message")),
    *COLUMNS[2:5],
    Column("Namespace", lambda row: row["namespace"]),
    Column("Image", lambda row: row["image"]),
    Column("CPU", lambda row: f"{row['resources']['cpus']:g}"),
    Column("RAM", lambda row: f"{row['resources']['memory_mb']} MiB"),
    Column("Disk", lambda row: f"{row['resources']['disk_size_mb']} MiB"),
    Column("Usable", lambda row: row["usable"]),
    Column("Why not", lambda row: row["unusable_reason"]),
    Column("Made from", lambda row: row["parent_id"]),
    Column("Workspaces of it", lambda row: row["dependants"]),
    Column("Created", lambda row: row["created_at"]),
    Column("Last used", lambda row: row["last_used_at"]),
    Column("Deleted at", lambda row: row["expires_at"]),
)


def add_snapshot_commands(app: typer.Typer) -> None:
    group = command_group("snapshot", "Kept states of workspaces: disk and memory of one instant.", app)
    command(group, "create")(create_snapshot)
    command(group, "list")(list_snapshots)
    command(group, "show")(show_snapshot)
    command(group, "update")(update_snapshot)
    command(group, "rm")(remove_snapshots)
    command(app, "restore")(restore_workspace)
    command(app, "fork")(fork_workspace)


def create_snapshot(
    session: Session,
    *,
    workspace: OptionalWorkspace = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Its name; without one it has the workspace's and the time.")
    ] = None,
    after: Annotated[
        Literal["resume", "paused", "stop"], typer.Option("--after", help="What the workspace does from then on.")
    ] = "resume",
    memory: Memory = None,
    ttl: KeptFor = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", parser=bounded_number(1, LONGEST_WAIT), help="How long to wait."),
    ] = LONGEST_WAIT,
) -> None:
    """Keep the state of a workspace, which goes on. The snapshot has what the workspace has, also keys and tokens."""
    body: Any = collect_fields(name=name, after=after, memory=memory, ttl=ttl, ready_timeout_seconds=timeout)
    found = session.workspace(workspace)
    with session.output.step_progress() as show:
        show("Keeping the state", 0)
        with order_that_may_be_taken(session, "ws snapshot list", "ws snapshot rm"):
            made = session.client.snapshots.create(found, **body)
    if made["status"] == "failed":  # only an order that was sent again is answered like this
        message = made["error"]["message"] if made["error"] else "It could not be made."
        raise CommandError(message, f"`ws snapshot rm {made['id']}` removes it.")
    if made["status"] != "ready":
        message = f"{made['name']} is not complete after {timeout:g} seconds; it is still being made."
        raise CommandError(message, f"`ws snapshot show {made['id']}` has its state.", ExitCode.TIMEOUT)
    session.output.show_result(made, made["name"])


def list_snapshots(
    session: Session,
    *,
    workspace: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKSPACE",
            help="Those of this one; `.` is the last created one. Without one: all.",
            autocompletion=workspace_names,
        ),
    ] = None,
    status: Annotated[
        Literal["creating", "ready", "failed"] | None, typer.Option("--status", help="Those in this state.")
    ] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Those of this namespace.")] = None,
    search: Annotated[str | None, typer.Option("--search", help="Those with this text in the name.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only their ids, one a line.")] = False,
) -> None:
    """List snapshots, newest first."""
    found = session.client.workspaces.get(session.workspace(workspace))["id"] if workspace else None
    listed = session.client.snapshots.list(workspace_id=found, status=status, namespace=namespace, search=search)
    rows: list[dict[str, Any]] = [dict(row) for row in listed]
    if quiet:
        session.output.show_lines([row["id"] for row in rows])
    else:
        session.output.show_rows(COLUMNS, rows, "No snapshots. `ws snapshot create` makes one.")


def show_snapshot(session: Session, *, snapshot: SnapshotName) -> None:
    """Show a snapshot."""
    session.output.show_object(session.client.snapshots.get(_id_of(session, snapshot)), FIELDS)


def update_snapshot(
    session: Session,
    *,
    snapshot: SnapshotName,
    name: Annotated[str | None, typer.Option("--name", help="A new name.")] = None,
    ttl: KeptFor = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep it until it is deleted.")] = False,
) -> None:
    """Change the name of a snapshot, and how long it is kept from now on."""
    if keep and ttl:
        raise CommandError("Either it is kept or it has a TTL.", "Leave one of the two out.", ExitCode.USAGE)
    body: Any = collect_fields(name=name, ttl=ttl) | ({"ttl": None} if keep else {})
    if not body:
        raise CommandError("Nothing to change.", "Give --name, --ttl or --keep.", ExitCode.USAGE)
    changed = session.client.snapshots.update(_id_of(session, snapshot), **body)
    until = f"until {changed['expires_at']}" if changed["expires_at"] else "until it is deleted"
    session.output.show_result(changed, f"{changed['name']} is kept {until}.")


def remove_snapshots(
    session: Session,
    *,
    snapshots: Annotated[list[str], typer.Argument(metavar="SNAPSHOT", help="Ids or names.")],
    yes: Confirmed = False,
) -> None:
    """Delete snapshots. Workspaces that were made from them live on."""
    require_confirmation(f"Delete {', '.join(snapshots)}?", yes)
    for number, snapshot in enumerate(snapshots):
        try:
            session.client.snapshots.delete(_id_of(session, snapshot))
        except (MicrovmError, CommandError):
            if number:
                gone, kept = ", ".join(snapshots[:number]), ", ".join(snapshots[number:])
                session.output.warn(f"{gone}: deleted. {kept}: not deleted.")
            raise
    session.output.show_result({"deleted": snapshots}, f"Deleted {', '.join(snapshots)}.")


def restore_workspace(
    session: Session,
    *,
    workspace: OptionalWorkspace = None,
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", help="One of its snapshots, by id or name; else the newest one.")
    ] = None,
    memory: Memory = None,
    yes: Confirmed = False,
) -> None:
    """Put a workspace back to one of its snapshots. What was since is lost; address, tokens and settings stay."""
    question = (
        f"Put {session.reference(workspace)} back to {snapshot or 'its newest snapshot'}? What was since is lost."
    )
    require_confirmation(question, yes)
    body = cast(Any, collect_fields(snapshot=snapshot, memory=memory))
    found = session.workspace(workspace)
    with session.output.step_progress() as show:
        show("Restoring", 0)
        restored = session.client.snapshots.restore(found, **body)
    text = f"{restored['slug'] or restored['id']} is {restored['status']}, as it was in the snapshot."
    session.output.show_result(restored, text)


def _id_of(session: Session, given: str) -> str:
    """Return the id of a snapshot that is given by id or name. Raise CommandError if there is none."""
    if _ID.fullmatch(given):
        return given
    for row in session.client.snapshots.list(search=given):
        if row["name"] == given:
            return row["id"]
    message = f"There is no snapshot {given!r}."
    raise CommandError(message, "`ws snapshot list` shows those that exist.", ExitCode.NOT_FOUND)
