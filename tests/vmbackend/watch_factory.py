"""A running `guest watch`, and what a reader of its events believes is there."""

from __future__ import annotations

import os
import select
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

READY, ADDED, CHANGED, REMOVED, RENAMED, OVERFLOWED, GONE = range(1, 8)


@dataclass(frozen=True)
class Event:
    kind: int
    is_folder: bool
    path: bytes
    other: bytes


class Watch:
    """A running `guest watch`. `folders`: how many the kernel lets it watch."""

    def __init__(self, program: Path, folder: Path, *patterns: str, folders: int = 0) -> None:
        command = [str(program), "watch", str(folder), *patterns]
        if folders:
            # The limit of a user namespace is its own.
            script = 'echo "$1" > /proc/sys/user/max_inotify_watches; shift; exec "$@"'
            command = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", str(folders), *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self._fd = self.process.stdout.fileno()
        self._data = b""

    def read(self, seconds: float) -> Event | None:
        """The next event, None if there is none for that long."""
        while len(self._data) < 4 or len(self._data) < 4 + struct.unpack(">I", self._data[:4])[0]:
            if not select.select([self._fd], [], [], seconds)[0]:
                return None
            block = os.read(self._fd, 65536)
            if not block:
                return None
            self._data += block
        (length,) = struct.unpack(">I", self._data[:4])
        body, self._data = self._data[4 : 4 + length], self._data[4 + length :]
        (size,) = struct.unpack(">I", body[2:6])
        path, rest = body[6 : 6 + size], body[6 + size :]
        (other,) = struct.unpack(">I", rest[:4])
        assert len(rest) == other + 4
        return Event(body[0], bool(body[1]), path, rest[4:])

    def read_all(self, quiet: float = 1.0) -> list[Event]:
        """Events until there are none for a while."""
        found = []
        while event := self.read(quiet):
            found.append(event)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Picture:
    """What a reader of the events believes is there."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.paths = self.real()
        self.overflows = 0

    def real(self) -> set[bytes]:
        top = os.fsencode(self.tree)
        found = set()
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                found.add(os.path.relpath(folder + b"/" + name, top))
        return found

    def apply(self, event: Event) -> None:
        if event.kind == ADDED:
            self.paths.add(event.path)
        elif event.kind == REMOVED:
            self.remove(event.path)
        elif event.kind == RENAMED:
            moved = {path for path in self.paths if path == event.path or path.startswith(event.path + b"/")}
            self.paths -= moved
            self.remove(event.other)
            self.paths |= {event.other + path[len(event.path) :] for path in moved} | {event.other}
        elif event.kind == OVERFLOWED:
            self.overflows += 1

    def remove(self, path: bytes) -> None:
        self.paths = {each for each in self.paths if each != path and not each.startswith(path + b"/")}
