"""Arguments that many commands have, and texts that become values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from microvm.cli.completion import workspace_names
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.printable import printable

ANY = "Id or slug; without one, or as `.`, the workspace that was created last."
OptionalWorkspace = Annotated[
    str | None, typer.Argument(metavar="[WORKSPACE]", help=ANY, autocompletion=workspace_names)
]
NamedWorkspaces = Annotated[
    list[str],
    typer.Argument(
        metavar="WORKSPACE...",
        help="Ids or slugs; `.` is the one that was created last.",
        autocompletion=workspace_names,
    ),
]
Confirmed = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
MOST_SIZE = 1e9
_UNITS = {"": 1, "m": 1, "g": 1024, "t": 1024**2}


def megabytes(text: str | None) -> int | None:
    """`512`, `512M` or `2G` as MiB. Raises CommandError."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].lower() == "k" or not 0 < float(found[1]) < MOST_SIZE:
        raise CommandError(f"{text!r} is no size.", "Sizes look like 512M or 2G.", ExitCode.USAGE)
    return round(float(found[1]) * _UNITS[found[2].lower()])


def environment(items: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`KEY=VALUE` items; `KEY` alone takes the value that it has here. Raises CommandError."""
    found = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise CommandError(f"{item!r} is no variable.", "Variables look like KEY=VALUE.", ExitCode.USAGE)
        if not separator and key not in environ:
            raise CommandError(f"{key} has no value here.", "Give it as KEY=VALUE.", ExitCode.USAGE)
        found[key] = value if separator else environ[key]
    return found


def require_confirmation(question: str, confirmed: bool) -> None:
    """Ask on the terminal. Raises CommandError where there is none, or the answer is no."""
    if confirmed:
        return
    if not (os.isatty(0) and os.isatty(2)):
        raise CommandError(
            "This needs a confirmation, and there is no terminal to ask on.", "Add --yes.", ExitCode.USAGE
        )
    if not typer.confirm(printable(question), err=True):
        raise CommandError("Nothing was done.")
