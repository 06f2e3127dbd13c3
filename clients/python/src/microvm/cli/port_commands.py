"""Public ports: `ws port`."""

from __future__ import annotations

from typing import Annotated

import typer

from microvm.cli.arguments import OptionalWorkspace, PortNumber
from microvm.cli.domain_commands import add_port_domain_commands
from microvm.cli.output import Column
from microvm.cli.session import Session, command, command_group

COLUMNS = (
    Column("Port", lambda row: row["port"]),
    Column("Address", lambda row: row["url"]),
    Column("Label", lambda row: row["label"]),
)


def add_port_commands(app: typer.Typer) -> None:
    ports = command_group("port", "Public addresses of ports.", app)
    command(ports, "publish")(publish_port)
    command(ports, "list")(list_ports)
    command(ports, "rm")(withdraw_port)
    add_port_domain_commands(ports)


def publish_port(
    session: Session,
    *,
    port: PortNumber,
    workspace: OptionalWorkspace = None,
    label: Annotated[str | None, typer.Option("--label", help="What it is for.")] = None,
) -> None:
    """Give a port a public address, and print it."""
    found = session.workspace(workspace)
    given = {"label": label} if label else {}
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
