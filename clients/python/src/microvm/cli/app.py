"""All commands of `ws`."""

from __future__ import annotations

import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from types import FrameType
from typing import Annotated

import typer

from microvm.cli.account_commands import add_account_commands
from microvm.cli.create_command import add_create_command
from microvm.cli.file_commands import add_file_commands
from microvm.cli.host_commands import add_host_commands
from microvm.cli.login_commands import add_login_commands
from microvm.cli.mcp_command import add_mcp_command
from microvm.cli.other_commands import add_other_commands
from microvm.cli.page_commands import add_page_commands
from microvm.cli.port_commands import add_port_commands
from microvm.cli.power_commands import add_power_commands
from microvm.cli.run_commands import add_run_commands
from microvm.cli.session import Json, ProfileOption
from microvm.cli.snapshot_commands import add_snapshot_commands
from microvm.cli.task_commands import add_task_commands
from microvm.cli.usage import CommandGroup
from microvm.cli.workload_commands import add_workload_commands
from microvm.cli.workspace_commands import add_workspace_commands

EPILOG = "First use: ws login --file var/credentials.env; ws create --wait && ws terminal"


def make_app() -> typer.Typer:
    app = typer.Typer(
        name="ws",
        cls=CommandGroup,
        help="Workspaces from the command line: micro-VMs, their programs, files, ports and pages.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(show_version)
    add_login_commands(app)
    add_create_command(app)
    add_workspace_commands(app)
    add_run_commands(app)
    add_task_commands(app)
    add_workload_commands(app)
    add_file_commands(app)
    add_power_commands(app)
    add_snapshot_commands(app)
    add_port_commands(app)
    add_page_commands(app)
    add_account_commands(app)
    add_host_commands(app)
    add_other_commands(app)
    add_mcp_command(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(package_version())
        raise typer.Exit


def package_version() -> str:
    try:
        return version("microvm")
    except PackageNotFoundError:
        return "0"


def show_version(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
    json: Json = False,
    profile: ProfileOption = None,
) -> None:
    """Options before the command, which reads them from its context (session.py)."""


def run_command_line() -> None:
    """Exits with the command's code. A signal ends it in order: half a file and a hidden cursor do not stay."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is signal.SIG_DFL:  # `nohup` has one ignored
            signal.signal(name, _end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a locale without a guest's characters must not end the command
            stream.reconfigure(errors="backslashreplace")
    make_app()()


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
