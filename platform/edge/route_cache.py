"""The route cache: which machine a label leads to, as files that Caddy looks up itself, so that it asks the platform
once a second for a port with many requests. Imports no Django.

`<folder>/<unix second>/<label>/<ip>:<port>`, an empty file. The second is part of the path under which Caddy looks, so
a route expires with it, even if every process of the platform dies. A file in place of the label's folder marks the
label as invalidated: no route is stored for it in this second any more.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def this_second() -> int:
    """Return Unix time, as Caddy's `time.now.unix`."""
    return int(time.time())


def route_cache_folder(run_dir: Path) -> Path:
    """Return the folder of the routes, in an instance's folder of sockets, which only its user can enter."""
    return run_dir / "routes"


class RouteCache:
    """The folder, created when needed. Safe for any number of processes and threads of one host."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def store(self, second: int, label: str, upstream: str) -> None:
        """Store a route that was looked up after `second` had begun. Best effort; does nothing once the second is over.

        An older look-up must not be stored: its row may have changed, and the label been invalidated, before the second
        began.
        """
        place = f"{self._folder}/{second}/{label}"
        # NotADirectoryError: the label was invalidated within this second.
        with suppress(OSError):
            try:
                _touch(f"{place}/{upstream}")
            except FileNotFoundError:
                if second != this_second():
                    return
                self._create_second(second)
                with suppress(FileExistsError):
                    Path(place).mkdir(0o700)
                _touch(f"{place}/{upstream}")

    def invalidate(self, labels: Iterable[str]) -> None:
        """Remove the routes of these labels; look-ups that began before are not stored afterwards either.

        Raise OSError; the routes then expire with their second. FileNotFoundError: the parent folder does not exist,
        so there is no cache.
        """
        wanted = list(labels)
        if not wanted:
            return
        now = this_second()
        self._create_second(now)
        # Other seconds matter only if the clock is set back. There is rarely more than one.
        for second in {now, *self._seconds()}:
            for label in wanted:
                _mark_invalidated(f"{self._folder}/{second}", label)

    def cached_addresses(self) -> set[str]:
        """Return the IP addresses of the routes of this second."""
        found: set[str] = set()
        # OSError: the second ended and another process removed its folder.
        with suppress(OSError):
            for place in Path(self._folder, str(this_second())).glob("*/*"):
                found.add(place.name.rpartition(":")[0])
        return found

    def remove_expired(self) -> None:
        """Remove the folders of all other seconds."""
        found = self._seconds()
        # Read after the listing, so that a folder which another process creates for a new second is never removed.
        now = this_second()
        for second in found:
            if second != now:
                shutil.rmtree(f"{self._folder}/{second}", ignore_errors=True)

    def _create_second(self, second: int) -> None:
        """Create the folder of a second and remove all others, so there are never more than a few."""
        folder = Path(self._folder, str(second))
        if not folder.is_dir():
            folder.parent.mkdir(0o700, exist_ok=True)
            with suppress(FileExistsError):
                folder.mkdir(0o700)
                self.remove_expired()

    def _seconds(self) -> list[int]:
        with suppress(OSError):
            return [int(folder.name) for folder in Path(self._folder).iterdir() if folder.name.isdecimal()]
        return []


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _mark_invalidated(folder: str, label: str) -> None:
    """Put a file in place of the label's folder. The folder is renamed, which removes all its routes at once; another
    process may create it again in between, so this repeats until the file is there."""
    place = Path(folder, label)
    # FileNotFoundError: the second ended and its folder was removed.
    with suppress(FileNotFoundError):
        while True:
            try:
                place.touch(0o600, exist_ok=False)
                return
            except FileExistsError:
                if not place.is_dir():
                    return
            with suppress(FileNotFoundError):
                # No label contains a dot. Removed with its second.
                place.rename(f"{folder}/.{secrets.token_hex(8)}")
