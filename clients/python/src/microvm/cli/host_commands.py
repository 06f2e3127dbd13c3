"""Hosts, for staff: `ws hosts`, with a profile whose token is one of staff."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from microvm.cli.arguments import Confirmed, collect_fields, require_confirmation
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.output import Column
from microvm.cli.printable import size_text
from microvm.cli.session import Session, command, command_group

HostName = Annotated[str, typer.Argument(metavar="HOST", help="Name or id.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit log.")]
COLUMNS = (
    Column("Name", lambda row: row["name"]),
    Column("State", lambda row: row["state"]),
    Column("Running", lambda row: row["machines"]["running"]),
    Column("Memory", lambda row: f"{row['memory_promised_mb']} of {row['memory_mb']} MiB"),
    Column("Disk free", lambda row: f"{row['disk_free_mb']} MiB"),
    Column("Address", lambda row: row["address"]),
    Column("Id", lambda row: row["id"]),
)
FIELDS = (
    *COLUMNS,
    Column("Since", lambda row: row["state_since"]),
    Column("Problem", lambda row: row["problem"]),
    Column("Labels", lambda row: ", ".join(f"{name}={value}" for name, value in row["labels"].items())),
    Column("Zone", lambda row: row["zone"]),
    Column("Subnet", lambda row: row["subnet"]),
    Column("Sleeping", lambda row: row["machines"]["sleeping"]),
    Column("Stopped", lambda row: row["machines"]["stopped"]),
    Column("Snapshots", lambda row: size_text(row["snapshots_bytes"])),
    Column("Orphans", lambda row: len(row["orphans"])),
    Column("Workspaces", lambda row: row["would"]["lost"]),
    Column("Seen", lambda row: row["last_seen_at"]),
)

ORPHAN_COLUMNS = (
    Column("Workspace", lambda row: row["workspace_id"]),
    Column("It is", lambda row: row["workspace_status"] or "deleted"),
    Column("Kept since", lambda row: datetime.fromtimestamp(row["kept_since"], UTC).isoformat(timespec="seconds")),
    Column("Size", lambda row: size_text(row["size_bytes"])),
    Column("Epoch", lambda row: row["epoch"]),
    Column("Name", lambda row: row["name"]),
)


def add_host_commands(app: typer.Typer) -> None:
    hosts = command_group("hosts", "Hosts of the platform, for staff.", app)
    command(hosts, "list")(list_hosts)
    command(hosts, "show")(show_host)
    command(hosts, "token")(make_token)
    command(hosts, "drain")(drain_host)
    command(hosts, "move")(move_workspace)
    command(hosts, "cancel-move")(cancel_move)
    command(hosts, "activate")(activate_host)
    command(hosts, "maintenance")(maintain_host)
    command(hosts, "give-up")(give_host_up)
    command(hosts, "orphans")(handle_orphans)
    command(hosts, "rm")(remove_host)


def list_hosts(
    session: Session,
    *,
    state: Annotated[str | None, typer.Option("--state", help="Those in this state.")] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="NAME[=VALUE]", help="Those with it.")] = None,
    search: Annotated[str | None, typer.Option("--search", help="Those with this text in the name.")] = None,
) -> None:
    """List hosts by name."""
    wanted: Any = collect_fields(state=state, label=label, search=search)
    rows: list[dict[str, Any]] = [dict(row) for row in session.client.hosts.list(**wanted)]
    session.output.show_rows(COLUMNS, rows, "No hosts.")


def show_host(session: Session, *, host: HostName) -> None:
    """Show a host, and what is lost with it."""
    session.output.show_object(session.client.hosts.get(_id_of(session, host)), FIELDS)


def make_token(
    session: Session,
    *,
    name: Annotated[str | None, typer.Option("--name", help="Of the host; else the machine's own.")] = None,
    ttl: Annotated[int | None, typer.Option("--ttl", metavar="SECONDS", help="How long it can be used.")] = None,
) -> None:
    """Print the line with which another machine joins. It is good for one machine."""
    wanted: Any = collect_fields(name=name, ttl_seconds=ttl)
    made = session.client.hosts.create_token(**wanted)
    session.output.show_result(made, made["command"])


def drain_host(
    session: Session,
    *,
    host: HostName,
    reason: Reason,
    wait: Annotated[bool, typer.Option("--wait", help="Move running ones when they stop or sleep.")] = False,
    deadline: Annotated[
        int | None, typer.Option("--deadline", metavar="SECONDS", help="With --wait: then move them all the same.")
    ] = None,
    drop_memory: Annotated[bool, typer.Option("--drop-memory", help="What slept or ran starts anew.")] = False,
) -> None:
    """Place nothing new on a host, and move its workspaces to others."""
    wanted: Any = collect_fields(deadline_seconds=deadline)
    wanted |= {"running": "wait" if wait else "move", "memory": "drop" if drop_memory else "keep"}
    drain = session.client.hosts.drain(_id_of(session, host), reason=reason, **wanted)
    left = drain["workspaces_left"]
    session.output.show_result(drain, f"{drain['host']} is {drain['state']}, with {left} workspaces left.")


def move_workspace(
    session: Session,
    *,
    workspace: Annotated[str, typer.Argument(metavar="WORKSPACE", help="Its id.")],
    reason: Reason,
    to: Annotated[str | None, typer.Option("--to", metavar="HOST", help="Name or id; else the best one.")] = None,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="It starts anew from its disk.")] = False,
    new_address: Annotated[bool, typer.Option("--new-address", help="Also if it is to keep its address.")] = False,
) -> None:
    """Move a workspace to another host, with its files, its snapshots and its memory."""
    wanted: Any = collect_fields(to=to, address="new" if new_address else None)
    move = session.client.hosts.move(workspace, reason=reason, memory=not no_memory, **wanted)
    _show_move(session, move)


def cancel_move(
    session: Session, *, workspace: Annotated[str, typer.Argument(metavar="WORKSPACE", help="Its id.")]
) -> None:
    """End a move before its commit: the workspace goes on where it is."""
    _show_move(session, session.client.hosts.cancel_move(workspace))


def activate_host(session: Session, *, host: HostName, reason: Reason) -> None:
    """Place and start workspaces on a host again."""
    _show_state(session, session.client.hosts.activate(_id_of(session, host), reason=reason))


def maintain_host(session: Session, *, host: HostName, reason: Reason) -> None:
    """Start, wake and place nothing on a host. What runs there goes on."""
    _show_state(session, session.client.hosts.maintenance(_id_of(session, host), reason=reason))


def give_host_up(session: Session, *, host: HostName, reason: Reason, yes: Confirmed = False) -> None:
    """Give up a host that does not come back: its workspaces are lost."""
    found = session.client.hosts.get(_id_of(session, host))
    lost = found["would"]["lost"]
    require_confirmation(f"Give up {found['name']}, with {lost} workspaces", yes)
    _show_state(session, session.client.hosts.give_up(found["id"], reason=reason, confirm=found["name"]))


def remove_host(session: Session, *, host: HostName, reason: Reason, yes: Confirmed = False) -> None:
    """Remove a host that has no workspaces. Its machine is let in no more."""
    found = _id_of(session, host)
    require_confirmation(f"Remove the host {host}", yes)
    session.client.hosts.remove(found, reason=reason)
    session.output.show_result({"id": found, "removed": True}, f"Removed the host {host}.")


def handle_orphans(
    session: Session,
    *,
    host: HostName,
    put_back: Annotated[
        str | None, typer.Option("--put-back", metavar="ID", help="Give this workspace its newest files back.")
    ] = None,
    delete: Annotated[
        str | None, typer.Option("--delete", metavar="ID", help="Remove what is kept of this workspace.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the audit log.")] = None,
    yes: Confirmed = False,
) -> None:
    """List what a host has kept of workspaces that are not its own any more; put it back, or remove it."""
    if put_back and delete:
        raise CommandError("--put-back and --delete exclude each other.", "Say one of them.", ExitCode.USAGE)
    if (put_back or delete) and not reason:
        raise CommandError("Nothing is changed without a reason.", "Say why with --reason TEXT.", ExitCode.USAGE)
    found = _id_of(session, host)
    if put_back:
        made = session.client.hosts.put_back(found, put_back, reason=reason or "")
        session.output.show_result(made, f"{put_back} is {made['status']} on {made['host']}, with its files.")
    elif delete:
        require_confirmation(f"Remove what {host} has kept of {delete}", yes)
        removed = session.client.hosts.remove_orphans(found, delete, reason=reason or "")
        session.output.show_result({"removed": removed}, f"Removed {', '.join(removed)}.")
    else:
        rows: list[dict[str, Any]] = [dict(row) for row in session.client.hosts.orphans(found)]
        session.output.show_rows(ORPHAN_COLUMNS, rows, "Nothing is kept.")


def _id_of(session: Session, name: str) -> str:
    """Return the id of a host by name or id. Raises CommandError."""
    for row in session.client.hosts.list(search=name):
        if name in (row["name"], row["id"]):
            return str(row["id"])
    raise CommandError(f"There is no host {name}.", "`ws hosts list` shows them.", ExitCode.NOT_FOUND)


def _show_state(session: Session, host: Any) -> None:
    session.output.show_result(host, f"{host['name']} is {host['state']}.")


def _show_move(session: Session, move: Any) -> None:
    text = (
        f"The move of {move['workspace_id']} from {move['from']} to {move['to']} is {move['state']} ({move['step']})."
    )
    session.output.show_result(move, text)
