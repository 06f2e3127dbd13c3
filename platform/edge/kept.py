"""Answers to the edge's question, kept until the end of the second: files that Caddy finds by itself, so that it asks
once a second for a port with many requests. Imports no Django.

`<folder>/<unix second>/<label>/<ip>:<port>`, an empty file. The second is part of the name under which Caddy looks, so
an answer ends with it, whatever has become of the processes. A file in the label's place means: nothing more is kept
for this label in this second.
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
    """Unix time, as Caddy's `time.now.unix`."""
    return int(time.time())


def kept_folder(run_dir: Path) -> Path:
    """Where answers are kept, in an instance's folder of sockets, which only its user enters."""
    return run_dir / "kept"


class Kept:
    """The folder, made when it is needed; any number of processes and threads of the host use it at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def keep(self, second: int, label: str, upstream: str) -> None:
        """Keep an answer that was looked up after `second` had begun. Best effort; nothing once the second is over.

        An older look-up must not be kept: what it saw may have changed, and been forgotten, before the second began.
        """
        place = f"{self._folder}/{second}/{label}"
        # NotADirectoryError: the label was forgotten within this second.
        with suppress(OSError):
            try:
                _touch(f"{place}/{upstream}")
            except FileNotFoundError:
                if second != this_second():
                    return
                self._begin(second)
                with suppress(FileExistsError):
                    Path(place).mkdir(0o700)
                _touch(f"{place}/{upstream}")

    def forget(self, labels: Iterable[str]) -> None:
        """Nothing is kept of these when this returns, nor will be of what was looked up before.

        Raises OSError: what is kept ends with its second then. FileNotFoundError: there is no place to keep anything.
        """
        wanted = list(labels)
        if not wanted:
            return
        now = this_second()
        self._begin(now)
        # Other seconds count only where the clock is set back. There is rarely more than one.
        for second in {now, *self._seconds()}:
            for label in wanted:
                _close(f"{self._folder}/{second}", label)

    def addresses(self) -> set[str]:
        """The IP addresses that answers of this second name."""
        found: set[str] = set()
        # OSError: the second is over, and its folder was removed meanwhile.
        with suppress(OSError):
            for place in Path(self._folder, str(this_second())).glob("*/*"):
                found.add(place.name.rpartition(":")[0])
        return found

    def clear(self) -> None:
        """Remove what is left of other seconds than this one."""
        found = self._seconds()
        # Looked at after the listing: a folder that another process has made for a new second is none of the past.
        now = this_second()
        for second in found:
            if second != now:
                shutil.rmtree(f"{self._folder}/{second}", ignore_errors=True)

    def _begin(self, second: int) -> None:
        """The folder of a second. Whoever makes one clears all others away, so there are never more than a few."""
        folder = Path(self._folder, str(second))
        if not folder.is_dir():
            folder.parent.mkdir(0o700, exist_ok=True)
            with suppress(FileExistsError):
                folder.mkdir(0o700)
                self.clear()

    def _seconds(self) -> list[int]:
        with suppress(OSError):
            return [int(folder.name) for folder in Path(self._folder).iterdir() if folder.name.isdecimal()]
        return []


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _close(folder: str, label: str) -> None:
    """Put a file in the label's place. Its folder, where there is one, goes away at one stroke, and with it all that
    is in it; another process may make it anew in between."""
    place = Path(folder, label)
    # FileNotFoundError: the second is over, and its folder was removed.
    with suppress(FileNotFoundError):
        while True:
            try:
                place.touch(0o600, exist_ok=False)
                return
            except FileExistsError:
                if not place.is_dir():
                    return
            with suppress(FileNotFoundError):
                # No label has a dot. It is removed with its second.
                place.rename(f"{folder}/.{secrets.token_hex(8)}")
