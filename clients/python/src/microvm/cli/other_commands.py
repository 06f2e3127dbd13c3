"""The browser."""

from __future__ import annotations

import os
import webbrowser
from typing import Annotated

import typer

from microvm.cli.arguments import OptionalWorkspace
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.session import Session, command


def add_other_commands(app: typer.Typer) -> None:
    command(app, "open")(open_address)


def open_address(
    session: Session,
    *,
    workspace: OptionalWorkspace = None,
    port: Annotated[int | None, typer.Option("--port", "-p", help="Of several public ports.")] = None,
    print_only: Annotated[bool, typer.Option("--print", help="Print the address; open nothing.")] = False,
) -> None:
    """Open the public port of a workspace in a browser; without a display the address is printed."""
    ports = session.client.ports.list(session.workspace(workspace))["ports"]
    fitting = [each for each in ports if port in (None, each["port"])]
    if not fitting:
        raise CommandError("There is no such public port.", "`ws port publish PORT` makes one.", ExitCode.NOT_FOUND)
    if len(fitting) > 1:
        numbers = ", ".join(str(each["port"]) for each in fitting)
        raise CommandError(f"There are several public ports: {numbers}.", "Choose one with --port.", ExitCode.USAGE)
    url = fitting[0]["url"]
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"{url!r} is no address for a browser.", "`ws port list` shows what there is.")
    has_display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER"))
    if print_only or session.output.as_json or not has_display or not webbrowser.open(url):
        session.output.show_result({"url": url}, url)
