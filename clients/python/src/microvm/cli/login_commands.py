"""Profiles: login, list, choice, logout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from microvm.cli.completion import profile_names
from microvm.cli.connection import Connection, checked_url, is_unencrypted, require_sendable
from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.output import Column
from microvm.cli.profiles import DEFAULT, STAFF_TOKEN, Profile, ProfileStore
from microvm.cli.session import Session, command
from microvm.errors import Forbidden
from microvm.sync.client import Microvm


def add_login_commands(app: typer.Typer) -> None:
    command(app, "login")(log_in)
    command(app, "logout")(log_out)
    command(app, "profiles")(list_profiles)


def log_in(
    session: Session,
    *,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Of the profile; else `default`.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A credentials.env, as instances write it.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="The address of the service.")] = None,
    client_id: Annotated[str | None, typer.Option("--client-id", help="Of the credential.")] = None,
    secret_stdin: Annotated[bool, typer.Option("--secret-stdin", help="Read the secret from standard input.")] = False,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read an access token instead.")] = False,
) -> None:
    """Check a credential and save it as a profile, which is the active one from then on.

    Secrets are asked for or read, and are no options: other users of this machine see the options of programs.
    """
    name = name or session.named_profile or DEFAULT
    profile = _profile_in(file) if file else _asked_profile(url, client_id, secret_stdin, token_stdin)
    if is_unencrypted(profile.base_url):
        session.output.warn(f"{profile.base_url} is not encrypted: others in the network can read the secret.")
    _require_valid(profile)
    store = ProfileStore()
    store.save(name, profile)
    shown = {"profile": name, "url": profile.base_url, "client_id": profile.client_id, "file": str(store.path)}
    session.output.show_result(shown, f"Logged in to {profile.base_url} as profile {name}.")


def log_out(
    session: Session,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Of the profile.", autocompletion=profile_names)
    ] = None,
) -> None:
    """Forget a profile with its secret: the named one, or the active one."""
    store = ProfileStore()
    found = name or session.named_profile or store.settings().active
    store.remove(found)
    session.output.show_result({"profile": found, "removed": True}, f"Removed the profile {found}.")


def list_profiles(
    session: Session,
    *,
    use: Annotated[
        str | None, typer.Option("--use", help="Make this one the active profile.", autocompletion=profile_names)
    ] = None,
) -> None:
    """List profiles, or choose the active one."""
    store = ProfileStore()
    if use:
        store.activate(use)
    settings = store.settings()
    rows = [
        {"name": name, "active": name == settings.active, "url": each.base_url, "client_id": each.client_id or None}
        for name, each in sorted(settings.profiles.items())
    ]
    columns = (
        Column("Active", lambda row: "*" if row["active"] else ""),
        Column("Name", lambda row: row["name"]),
        Column("Address", lambda row: row["url"]),
        Column("Client", lambda row: row["client_id"] or "an access token"),
    )
    session.output.show_rows(columns, rows, "No profiles. `ws login` makes one.")


def _profile_in(file: Path) -> Profile:
    """Raises CommandError for a file without the three variables, OSError."""
    found = {}
    for line in file.read_text(errors="replace").splitlines():
        key, separator, value = line.strip().removeprefix("export ").partition("=")
        if separator and not key.startswith("#"):
            found[key.strip()] = value.strip().strip("'\"")
    missing = [key for key in ("BASE_URL", "CLIENT_ID", "CLIENT_SECRET") if not found.get(key)]
    if missing:
        raise CommandError(
            f"{file} has no {', '.join(missing)}.", "`make up` writes var/credentials.env.", ExitCode.USAGE
        )
    return Profile(checked_url(found["BASE_URL"]), found["CLIENT_ID"], found["CLIENT_SECRET"])


def _asked_profile(url: str | None, client_id: str | None, secret_stdin: bool, token_stdin: bool) -> Profile:
    is_asked = sys.stdin.isatty()
    if not url and not is_asked:
        raise CommandError("Where to?", "Give --url, or --file with a credentials.env.", ExitCode.USAGE)
    base_url = checked_url(url or typer.prompt("Address", err=True))
    if token_stdin:
        return Profile(base_url, token=_line_of_stdin())
    if not client_id and not (is_asked and not secret_stdin):
        raise CommandError("As which client?", "Give --client-id.", ExitCode.USAGE)
    client_id = client_id or typer.prompt("Client id", err=True)
    if secret_stdin:
        return Profile(base_url, client_id, _line_of_stdin())
    if not is_asked:
        raise CommandError("There is no terminal to ask for the secret on.", "Add --secret-stdin.", ExitCode.USAGE)
    return Profile(base_url, client_id, typer.prompt("Client secret", hide_input=True, err=True))


def _line_of_stdin() -> str:
    if line := sys.stdin.readline().strip():
        return line
    raise CommandError("Standard input has no secret.", "Its first line is read: ... < FILE", ExitCode.USAGE)


def _require_valid(profile: Profile) -> None:
    """Raises Unauthorized, ConnectionFailed, CommandError."""
    require_sendable(profile)
    with Microvm(profile.base_url, **Connection(profile, "login").client_options()) as client:
        try:
            if profile.token.startswith(STAFF_TOKEN):
                next(iter(client.hosts.list()), None)
            else:
                client.quota.get()
        except Forbidden:
            return  # valid, of a scope without workspaces
