"""`ws mcp`: the MCP server, which needs the extra `mcp`."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from typing import Annotated

import typer

from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.session import Session, command

PORT = 8321


def add_mcp_command(app: typer.Typer) -> None:
    command(app, "mcp")(serve_mcp)


def serve_mcp(
    session: Session,
    *,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP instead of standard input and output.")
    ] = False,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="The port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = PORT,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A name by which clients reach it, as mcp.example:8321.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option("--allow-origin", help="An origin of pages that may use it.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Only the tools that change nothing.")] = False,
) -> None:
    """Serve workspaces to an agent by the Model Context Protocol.

    Over HTTP each request carries a bearer token: MICROVM_MCP_TOKEN, else one that is made and printed on stderr.
    """
    if missing := [name for name in ("mcp", "uvicorn") if find_spec(name) is None]:
        hint = "pip install 'microvm[mcp]'"
        raise CommandError(f"The MCP server is not installed ({', '.join(missing)} is missing).", hint)
    from microvm.mcp_server.http import HttpOptions, serve_http
    from microvm.mcp_server.server import make_server, serve_stdio

    for name in (signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(name)):  # that of `ws` would wait for the thread that reads standard input
            signal.signal(name, signal.SIG_DFL)
    connection = session.connection
    server = make_server(connection.profile.base_url, connection.client_options(), read_only=read_only)
    if not http:
        serve_stdio(server)
        return
    token = os.environ.get("MICROVM_MCP_TOKEN", "")
    if token and len(token) < 16:
        raise CommandError("MICROVM_MCP_TOKEN is too short.", "It has at least 16 characters.", ExitCode.USAGE)
    options = HttpOptions(host, port, token, tuple(allow_host or ()), tuple(allow_origin or ()))
    serve_http(server, options, say=session.output.show_note)
