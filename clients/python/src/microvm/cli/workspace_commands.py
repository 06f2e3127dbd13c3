"""Lists, sizes and removal of workspaces."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from microvm.cli.arguments import (
    Confirmed,
    Cpus,
    FirstWorkspace,
    NamedWorkspaces,
    OptionalWorkspace,
    collect_fields,
    megabytes,
    require_confirmation,
)
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.output import Column
from microvm.cli.session import Session, command
from microvm.errors import MicrovmError

COLUMNS = (
    Column("Name", lambda row: row["slug"] or row["name"]),
    Column("Status", lambda row: row["status"]),
    Column("Image", lambda row: row["image"]),
    Column("CPU", lambda row: f"{row['resources']['cpus']:g}"),
    Column("RAM", lambda row: f"{row['resources']['memory_mb']} MiB"),
    Column("Disk", lambda row: f"{row['resources']['disk_size_mb']} MiB"),
    Column("Created", lambda row: row["created_at"][:19].replace("T", " ")),
    Column("Id", lambda row: row["id"]),
)
SANDBOX_COLUMNS = (
    Column("Name", lambda row: row["name"]),
    Column("Status", lambda row: row["status"]),
    Column("Image", lambda row: row["image"]),
    Column("Address", lambda row: row["url"]),
    Column("Id", lambda row: row["id"]),
)
FIELDS = (
    Column("Name", lambda row: row["name"]),
    Column("Slug", lambda row: row["slug"]),
    Column("Id", lambda row: row["id"]),
    Column("Status", lambda row: row["status"]),
    Column("Error", lambda row: (row["info"]["error"] or row["provisioning"]["error"] or {}).get("message")),
    Column("Health", lambda row: row["info"]["health"]),
    Column("Namespace", lambda row: row["namespace"]),
    Column("Mode", lambda row: row["mode"]),
    Column("Image", lambda row: row["image"]),
    Column("CPU", lambda row: f"{row['resources']['cpus']:g}"),
    Column("RAM", lambda row: f"{row['resources']['memory_mb']} MiB"),
    Column("Disk", lambda row: f"{row['resources']['disk_size_mb']} MiB"),
    Column("IP", lambda row: row["ip"]),
    Column("Uptime", lambda row: f"{row['uptime']} s" if row["uptime"] else None),
    Column("SSH", lambda row: row["access"]["ssh_enabled"]),
    Column("Ports", lambda row: [f"{each['port']}: {each['url']}" for each in row["public_ports"]]),
    Column("Began from", lambda row: row.get("started_from")),
    Column("Snapshot", lambda row: row.get("source_snapshot_id")),
    Column("Created", lambda row: row["created_at"]),
)


def add_workspace_commands(app: typer.Typer) -> None:
    command(app, "list")(list_workspaces)
    command(app, "show")(show_workspace)
    command(app, "rename")(rename_workspace)
    command(app, "resize")(resize_workspace)
    command(app, "rm")(remove_workspaces)


def list_workspaces(
    session: Session,
    *,
    status: Annotated[str | None, typer.Option("--status", help="Those in this state.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Those of this namespace.")] = None,
    search: Annotated[str | None, typer.Option("--search", help="Those with this text in name or slug.")] = None,
    sandboxes: Annotated[bool, typer.Option("--sandboxes", help="Sandboxes instead.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only their ids, one a line.")] = False,
) -> None:
    """List workspaces, newest first."""
    rows = _listed(session, status=status, namespace=namespace, search=search, sandboxes=sandboxes)
    if quiet:
        session.output.show_lines([row["id"] for row in rows])
    elif sandboxes:
        session.output.show_rows(SANDBOX_COLUMNS, rows, "No sandboxes. `ws create --sandbox` makes one.")
    else:
        session.output.show_rows(COLUMNS, rows, "No workspaces. `ws create --wait` makes one.")


def _listed(
    session: Session, *, status: str | None, namespace: str | None, search: str | None, sandboxes: bool
) -> list[dict[str, Any]]:
    """Raises CommandError for a search of sandboxes."""
    if sandboxes:
        if search is not None:
            hint = "Leave one of the two out; --status and --namespace go with --sandboxes."
            raise CommandError("Sandboxes cannot be searched.", hint, ExitCode.USAGE)
        return [dict(row) for row in session.client.sandboxes.list(namespace=namespace, status=cast(Any, status))]
    rows = session.client.workspaces.list(status=cast(Any, status), namespace=namespace, search=search)
    return [dict(row) for row in rows]


def show_workspace(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """Show a workspace."""
    session.output.show_object(session.client.workspaces.get(session.workspace(workspace)), FIELDS)


def rename_workspace(
    session: Session,
    *,
    workspace: FirstWorkspace,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    slug: Annotated[
        str | None, typer.Option("--slug", help="A new slug, too: by the old one it is not found any more.")
    ] = None,
) -> None:
    """Give a workspace another name. Its slug, by which commands and addresses find it, stays unless one is given."""
    body = collect_fields(name=name, slug=slug)
    changed = session.client.workspaces.update(session.workspace(workspace), **cast(Any, body))
    shown = changed["slug"] or changed["id"]
    session.output.show_result(changed, f"{shown} is named {changed['name']}.")


def resize_workspace(
    session: Session,
    *,
    workspace: OptionalWorkspace = None,
    cpu: Cpus = None,
    ram: Annotated[str | None, typer.Option("--ram", metavar="SIZE", help="As 512M or 2G.")] = None,
    disk: Annotated[str | None, typer.Option("--disk", metavar="SIZE", help="As 20G; disks never shrink.")] = None,
    later: Annotated[bool, typer.Option("--later", help="With its next start, not now.")] = False,
) -> None:
    """Change the sizes of a workspace; one that runs is restarted for it where it must be."""
    body = collect_fields(cpus=cpu, memory_mb=megabytes(ram), disk_size_mb=megabytes(disk))
    if not body:
        raise CommandError("Nothing to change.", "Give --cpu, --ram or --disk.", ExitCode.USAGE)
    changed = session.client.resources.patch(session.workspace(workspace), **cast(Any, {**body, "apply": not later}))
    sizes = changed["updated"]
    text = f"{sizes['cpus']:g} CPUs, {sizes['memory_mb']} MiB of memory, {sizes['disk_size_mb']} MiB of disk"
    session.output.show_result(changed, f"{text}{' from its next start on' if later else ''}.")


def remove_workspaces(
    session: Session,
    *,
    workspaces: NamedWorkspaces,
    keep_snapshots: Annotated[bool, typer.Option("--keep-snapshots", help="Do not delete their snapshots.")] = False,
    yes: Confirmed = False,
) -> None:
    """Delete workspaces with all their data and snapshots."""
    names = [session.reference(each) for each in workspaces]
    require_confirmation(f"Delete {', '.join(names)} with all data?", yes)
    for number, name in enumerate(names):
        try:
            _remove(session, name, keep_snapshots=keep_snapshots or None)
        except MicrovmError:
            if number:
                session.output.warn(f"{', '.join(names[:number])}: deleted. {', '.join(names[number:])}: not deleted.")
            raise
    session.output.show_result({"deleted": names}, f"Deleted {', '.join(names)}.")


def _remove(session: Session, name: str, *, keep_snapshots: bool | None) -> None:
    sandbox = session.sandbox(name)
    if sandbox:
        session.client.sandboxes.delete(sandbox, keep_snapshots=keep_snapshots)
    else:
        name = session.client.workspaces.get(name)["id"]
        session.client.workspaces.delete(name, keep_snapshots=keep_snapshots)
    session.remember(lambda recent: recent.forget(sandbox or name))
