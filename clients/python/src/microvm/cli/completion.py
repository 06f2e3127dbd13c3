"""Names that a shell completes. It is quick or says nothing: a shell waits for it.

Scripts of shells evaluate what they are given: a name with anything but letters, digits, `.`, `_` and `-` is no
completion, also where the user chose it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import httpx
import typer

from microvm.cli.connection import find_connection
from microvm.cli.profiles import ProfileStore
from microvm.retries import Retries
from microvm.sync.client import Microvm

SECONDS = 2.0
MOST = 100
_HARMLESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def profile_names(incomplete: str) -> list[str]:
    """Profiles that begin with what is typed."""
    try:
        return _completions(sorted(ProfileStore().settings().profiles), incomplete)
    except Exception:
        return []


def given_before(context: typer.Context, option: str) -> Any:
    """The value of an option of every command, where it stands before the command: the nearest one."""
    parent = context.parent
    while parent is not None:
        if value := parent.params.get(option):
            return value
        parent = parent.parent
    return None


def workspace_names(context: typer.Context, incomplete: str) -> list[str]:
    """Slugs of workspaces that begin with what is typed, of the profile that is named or active."""
    try:
        connection = find_connection(context.params.get("profile") or given_before(context, "profile"))
        base = connection.profile.base_url
        with Microvm(
            base,
            **connection.client_options(),
            retries=Retries(attempts=1),
            http=httpx.Client(base_url=base, timeout=SECONDS),
        ) as client:
            answer = client.workspaces._call("GET", "/workspace", query={"limit": MOST, "search": incomplete or None})
            names = [str(row["slug"] or row["id"]) for row in answer["workspaces"]]
    except Exception:
        return []
    return _completions(names, incomplete)


def _completions(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete) and _HARMLESS.fullmatch(name)]
