"""Which service and credential a command uses: an option, the environment, or a profile."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx

from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.profiles import Profile, ProfileStore
from microvm.credentials import require_header_value

LOG_IN = "`ws login` makes a profile; for a local instance: ws login --file var/credentials.env"
NAMES = ("MICROVM_URL", "MICROVM_CLIENT_ID", "MICROVM_CLIENT_SECRET", "MICROVM_TOKEN", "MICROVM_PROFILE")


@dataclass(frozen=True)
class Connection:
    """`source` says where it came from. The secret is not in its text."""

    profile: Profile
    source: str

    @property
    def account(self) -> str:
        """Return the key under which this credential's workspaces are remembered."""
        return f"{self.profile.base_url} {self.profile.client_id or 'token'}"

    def client_options(self) -> dict[str, Any]:
        """As the client takes them."""
        if self.profile.token:
            return {"token": self.profile.token}
        return {"client_id": self.profile.client_id, "client_secret": self.profile.client_secret}


def find_connection(
    named: str | None, store: ProfileStore | None = None, environ: Mapping[str, str] = os.environ
) -> Connection:
    """A profile that an option names; else the environment's variables over its profile, else the active one.

    Raises CommandError where there is no whole credential.
    """
    store = store or ProfileStore()
    if named:
        profile = store.profile(named)
        require_sendable(profile)
        return Connection(profile, f"profile {named}")
    name = environ.get("MICROVM_PROFILE", "")
    settings = store.settings()
    base = store.profile(name) if name else settings.profiles.get(settings.active)
    profile = _overridden(base or Profile(""), environ)
    if not profile.base_url:
        raise CommandError("You are not logged in.", LOG_IN, ExitCode.UNAUTHORIZED)
    if not (profile.token or (profile.client_id and profile.client_secret)):
        hint = "Set MICROVM_CLIENT_ID and MICROVM_CLIENT_SECRET, or MICROVM_TOKEN."
        raise CommandError("There is no whole credential.", hint, ExitCode.UNAUTHORIZED)
    require_sendable(profile)
    changed = base is None or profile != base
    return Connection(profile, "the environment" if changed else f"profile {name or settings.active}")


def _overridden(base: Profile, environ: Mapping[str, str]) -> Profile:
    """A token in the environment replaces the profile's client, and the other way round."""
    profile = base
    if url := environ.get("MICROVM_URL"):
        profile = replace(profile, base_url=checked_url(url))
    client = {"client_id": environ.get("MICROVM_CLIENT_ID"), "client_secret": environ.get("MICROVM_CLIENT_SECRET")}
    if given := {name: value for name, value in client.items() if value}:
        profile = replace(profile, token="", **given)
    if token := environ.get("MICROVM_TOKEN"):
        profile = replace(profile, client_id="", client_secret="", token=token)
    return profile


def require_sendable(profile: Profile) -> None:
    """Raises CommandError, which does not have the value: often the end of a line of another system."""
    values = {"client id": profile.client_id, "client secret": profile.client_secret, "token": profile.token}
    try:
        for name, value in values.items():
            if value:
                require_header_value(name, value)
    except ValueError as error:
        raise CommandError(str(error), "Copy it again, without what stands around it.", ExitCode.USAGE) from None


def checked_url(url: str) -> str:
    """Without a slash at its end. Raises CommandError for what is no http address."""
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        httpx.URL(url.strip())
    except (ValueError, httpx.InvalidURL):
        valid = False
    if not valid or "@" in parts.netloc or parts.query or parts.fragment:
        raise CommandError(f"{url!r} is no address of a service.", "It looks like https://host:port.", ExitCode.USAGE)
    return url.strip().rstrip("/")


def is_unencrypted(url: str) -> bool:
    """Whether secrets would cross a network as plain text."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "http" and host not in ("localhost", "::1") and not host.startswith("127.")
