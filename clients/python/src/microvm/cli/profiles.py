"""Profiles: addresses and credentials, in a file that only its owner can read."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from microvm.cli.failures import CommandError, ExitCode

DEFAULT = "default"
# How tokens of staff begin, which reach other routes than credentials of accounts.
STAFF_TOKEN = "stf_"  # noqa: S105 no secret


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """MICROVM_CONFIG_DIR, else `microvm` in the folder for settings of the user."""
    if own := environ.get("MICROVM_CONFIG_DIR"):
        return Path(own)
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "microvm"


@dataclass
class Profile:
    """One account at one address. Its text has no secret."""

    base_url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


@dataclass
class Settings:
    """All profiles, and the one that is used where none is named."""

    active: str = DEFAULT
    profiles: dict[str, Profile] = field(default_factory=dict)


class PrivateFile:
    """A JSON file with mode 0600 in a folder with mode 0700. Changes by processes at once follow each other.

    A change is written beside the file and renamed: a process that dies leaves the old file or the new one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def content(self) -> dict[str, Any]:
        """{} where there is none. Raises CommandError for a file of another form."""
        try:
            found = json.loads(self.path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise CommandError(f"{self.path} cannot be read as settings.", "Repair it or remove it, then log in again.")
        return found

    def update(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Read, change and write under a lock."""
        with self._locked():
            content = self.content()
            change(content)
            self._write(content)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / f".{self.path.name}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, content: dict[str, Any]) -> None:
        part = self.path.with_name(f".{uuid4().hex}.part")
        try:
            descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as sink:
                json.dump(content, sink, indent=2)
                sink.write("\n")
            part.replace(self.path)
        finally:
            part.unlink(missing_ok=True)


class ProfileStore:
    """The profiles of a user."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = PrivateFile((folder or config_folder()) / "profiles.json")

    @property
    def path(self) -> Path:
        return self._file.path

    def settings(self) -> Settings:
        """Raises CommandError for a file that is no longer readable as settings."""
        content = self._file.content()
        try:
            profiles = {name: Profile(**fields) for name, fields in content.get("profiles", {}).items()}
        except (TypeError, AttributeError):
            hint = "Repair it or remove it, then log in again."
            raise CommandError(f"{self.path} has a profile of another form.", hint) from None
        return Settings(str(content.get("active", DEFAULT)), profiles)

    def profile(self, name: str) -> Profile:
        """Raises CommandError where there is none of that name."""
        found = self.settings().profiles.get(name)
        if found is None:
            raise CommandError(
                f"There is no profile {name!r}.",
                "`ws profiles` lists them, `ws login` makes one.",
                ExitCode.UNAUTHORIZED,
            )
        return found

    def save(self, name: str, profile: Profile) -> None:
        """Make or replace a profile, and use it from now on."""

        def change(content: dict[str, Any]) -> None:
            content.setdefault("profiles", {})[name] = asdict(profile)
            content["active"] = name

        self._file.update(change)

    def activate(self, name: str) -> None:
        """Use this profile where none is named. Raises CommandError."""
        self.profile(name)
        self._file.update(lambda content: content.update(active=name))

    def remove(self, name: str) -> None:
        """Forget a profile. Raises CommandError where there is none."""
        self.profile(name)

        def change(content: dict[str, Any]) -> None:
            profiles = content.get("profiles", {})
            profiles.pop(name, None)
            if content.get("active") == name:
                content["active"] = next(iter(sorted(profiles)), DEFAULT)

        self._file.update(change)
