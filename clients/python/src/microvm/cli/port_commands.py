"""Public ports and links to private ones: `ws port`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from microvm.cli.arguments import OptionalWorkspace, PortNumber, collect_fields, seconds
from microvm.cli.domain_commands import add_port_domain_commands
from microvm.cli.output import Column
from microvm.cli.session import Session, command, command_group

COLUMNS = (
    Column("Port", lambda row: row["port"]),
    Column("Address", lambda row: row["url"]),
    Column("Access", lambda row: row["access"]),
    Column("Label", lambda row: row["label"]),
)
LINKS = (
    Column("Link", lambda row: row["id"]),
    Column("Label", lambda row: row["label"]),
    Column("Until", lambda row: row["expires_at"]),
    Column("Last used", lambda row: row["last_used_at"]),
)
Label = Annotated[str | None, typer.Option("--label", help="What it is for.")]
LinkId = Annotated[str, typer.Argument(metavar="LINK", help="Its id: `ws port links` has it.")]


def add_port_commands(app: typer.Typer) -> None:
    ports = command_group("port", "Public addresses of ports.", app)
    command(ports, "publish")(publish_port)
    command(ports, "list")(list_ports)
    command(ports, "access")(change_access)
    command(ports, "link")(make_link)
    command(ports, "links")(list_links)
    command(ports, "unlink")(revoke_link)
    command(ports, "rm")(withdraw_port)
    add_port_domain_commands(ports)


def publish_port(
    session: Session,
    *,
    port: PortNumber,
    workspace: OptionalWorkspace = None,
    label: Label = None,
    private: Annotated[bool, typer.Option("--private", help="For visitors with a link only: `ws port link`.")] = False,
) -> None:
    """Give a port a public address, and print it."""
    found = session.workspace(workspace)
    given = collect_fields(label=label or None, access="private" if private else None)
    published = session.client.ports.publish(found, port=port, **given)["port"]
    session.output.show_result(published, published["url"])


def list_ports(session: Session, *, workspace: OptionalWorkspace = None) -> None:
    """List public ports with their addresses."""
    rows = session.client.ports.list(session.workspace(workspace))["ports"]
    session.output.show_rows(COLUMNS, [dict(row) for row in rows], "No public ports. `ws port publish` makes one.")


def withdraw_port(session: Session, *, port: PortNumber, workspace: OptionalWorkspace = None) -> None:
    """Take the public address of a port away; its connections end."""
    session.client.ports.withdraw(session.workspace(workspace), port)
    session.output.show_result({"port": port, "removed": True}, f"Port {port} is not public any more.")


def change_access(
    session: Session,
    *,
    port: PortNumber,
    access: Annotated[
        Literal["public", "private"], typer.Argument(metavar="ACCESS", help="`public`: everyone; `private`: by link.")
    ],
    workspace: OptionalWorkspace = None,
) -> None:
    """Say who may open a public port. Private: its connections end. Public: its links end."""
    changed = session.client.ports.change(session.workspace(workspace), port, access=access)
    session.output.show_result(changed, f"Port {port} is {access}.")


def make_link(
    session: Session,
    *,
    port: PortNumber,
    workspace: OptionalWorkspace = None,
    ttl: Annotated[str, typer.Option("--ttl", metavar="TIME", help="How long it opens the port, as 30m or 7d.")] = "1d",
    label: Label = None,
) -> None:
    """Make a link to a private port, and print its address. It is shown once."""
    body = collect_fields(ttl_seconds=seconds(ttl), label=label or None)
    link = session.client.ports.create_link(session.workspace(workspace), port, **body)
    session.output.show_result(link, str(link["url"]))


def list_links(session: Session, *, port: PortNumber, workspace: OptionalWorkspace = None) -> None:
    """List the links that open a private port, without their secrets."""
    rows = session.client.ports.links(session.workspace(workspace), port)
    session.output.show_rows(LINKS, [dict(row) for row in rows], "No links. `ws port link` makes one.")


def revoke_link(session: Session, *, port: PortNumber, link: LinkId, workspace: OptionalWorkspace = None) -> None:
    """Revoke a link; open connections of its port end."""
    session.client.ports.revoke_link(session.workspace(workspace), port, link)
    session.output.show_result({"link": link, "removed": True}, f"{link} opens port {port} no longer.")
