"""Arguments that many commands have, and texts that become values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from microvm.cli.completion import workspace_names
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.printable import printable

ANY = "Id or slug; without one, or as `.`, the workspace that was created last."
OptionalWorkspace = Annotated[str | None, typer.Argument(metavar="WORKSPACE", help=ANY, autocompletion=workspace_names)]
FirstWorkspace = Annotated[
    str,
    typer.Argument(
        metavar="WORKSPACE", help="Id or slug; `.` is the last created one.", autocompletion=workspace_names
    ),
]
NamedWorkspaces = Annotated[
    list[str],
    typer.Argument(
        metavar="WORKSPACE",
        help="Ids or slugs; `.` is the one that was created last.",
        autocompletion=workspace_names,
    ),
]
PageName = Annotated[str, typer.Argument(metavar="PAGE", help="Its slug.")]
PortNumber = Annotated[int, typer.Argument(metavar="PORT", min=1, max=65535, help="Of the program in the workspace.")]
Confirmed = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Environment = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="KEY=VALUE", help="Repeat it for more; KEY alone takes its value here."),
]
Memory = Annotated[
    bool | None,
    typer.Option("--memory/--no-memory", help="With its memory, or from the disk alone; else whatever there is."),
]
TimeToLive = Annotated[
    str | None, typer.Option("--ttl", metavar="TIME", help="Its life, as 2h; it is a temporary one then.")
]
Permanent = Annotated[bool, typer.Option("--permanent", help="Keep it until it is deleted.")]
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_TIME = re.compile(r"([0-9]{1,15})\s*([smhd]?)", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
MOST_MEGABYTES = 1e9
MOST_CPUS = 1000.0
LONGEST_WAIT = 86400.0  # seconds
_UNITS = {"": 1, "m": 1, "g": 1024, "t": 1024**2}


def bounded_number(least: float, most: float) -> Callable[[str], float]:
    """A parser of finite numbers: more than 0, from `least` to `most`. Raises BadParameter."""

    def number(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is no number.") from None
        if not (found > 0 and least <= found <= most):  # NaN compares with nothing
            range_text = f"from {least:g} to {most:g}" if least else f"above 0 and at most {most:g}"
            raise typer.BadParameter(f"{text!r} is not {range_text}.")
        return found

    return number


Cpus = Annotated[
    float | None, typer.Option("--cpu", metavar="NUMBER", parser=bounded_number(0, MOST_CPUS), help="Virtual CPUs.")
]
WaitSeconds = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", parser=bounded_number(0, LONGEST_WAIT), help="How long to wait at most."
    ),
]


def megabytes(text: str | None) -> int | None:
    """`512`, `512M` or `2G` as MiB. Raises CommandError."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    size = round(float(found[1]) * _UNITS.get(found[2].lower(), 0)) if found else 0
    if not 1 <= size <= MOST_MEGABYTES:
        raise CommandError(f"{text!r} is no size.", "Sizes look like 512M or 2G.", ExitCode.USAGE)
    return size


def seconds(text: str) -> int:
    """`90`, `30m`, `2h` or `7d` as seconds. Raises CommandError."""
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise CommandError(f"{text!r} is no time.", "Times look like 30m, 2h or 7d.", ExitCode.USAGE)
    return int(found[1]) * _SECONDS[found[2].lower()]


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


def env_entries(items: Sequence[str]) -> list[dict[str, str]]:
    """Return variables as the API takes them. Raises CommandError."""
    return [{"key": key, "value": value} for key, value in environment(items).items()]


def collect_fields(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def require_one_life(ttl: str | None, *, permanent: bool) -> None:
    """Raise CommandError if a permanent workspace is to have a TTL."""
    if permanent and ttl:
        raise CommandError("A permanent workspace has no TTL.", "Leave one of the two out.", ExitCode.USAGE)


def require_confirmation(question: str, confirmed: bool) -> None:
    """Ask on the terminal. Raises CommandError where there is none, or the answer is no."""
    if confirmed:
        return
    if not (os.isatty(0) and os.isatty(2)):
        raise CommandError(
            "This needs a confirmation, and there is no terminal to ask on.", "Add --yes.", ExitCode.USAGE
        )
    if not typer.confirm(printable(question), err=True):
        raise CommandError("Nothing was done.", "Answer y, or add --yes.")
