"""A running `guest watch`, and what a reader of its events believes is there."""

from __future__ import annotations

import ctypes
import os
import re
import select
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

READY, ADDED, CHANGED, REMOVED, RENAMED, OVERFLOWED, GONE = range(1, 8)
OWN_NAME = re.compile(rb"\.partial-[0-9a-f]{16}")
IN_CLOSE_NOWRITE, IN_OPEN = 0x10, 0x20


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


def require_begun(watch: Watch, folders: int | None = None) -> None:
    """Its first event says how many folders it watches; None: as many as its patterns leave."""
    event = watch.read(30)
    assert event is not None
    assert event == Event(READY, True, b"", b"%d" % (int(event.other) if folders is None else folders))


def folders_of(tree: Path) -> int:
    return 1 + sum(path.is_dir() and not path.is_symlink() for path in tree.rglob("*"))


@contextmanager
def ready_watch(program: Path, folder: Path) -> Iterator[Watch]:
    """A watch that has begun."""
    watch = Watch(program, folder)
    try:
        require_begun(watch, folders_of(folder))
        yield watch
    finally:
        watch.close()


def kinds(events: list[Event]) -> list[tuple[int, bytes]]:
    return [(event.kind, event.path) for event in events]


class Opens:
    """Counts how often a folder is opened, by whatever process."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        # With the ends, as two equal events in a row would be one.
        assert libc.inotify_add_watch(self._fd, os.fsencode(folder), IN_OPEN | IN_CLOSE_NOWRITE) > 0

    def count(self) -> int:
        """Since the last call."""
        found = 0
        with suppress(BlockingIOError):
            while block := os.read(self._fd, 65536):
                found += sum(bool(mask & IN_OPEN) and not name for mask, name in _masks(block))
        return found

    def close(self) -> None:
        os.close(self._fd)


def _masks(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Of inotify events, each with the name of the entry that it is of."""
    while block:
        _, mask, _, length = struct.unpack_from("iIII", block)
        yield mask, block[16 : 16 + length]
        block = block[16 + length :]


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
                # A change of its folder's name beside it may leave one; watches tell nothing of them.
                if not OWN_NAME.fullmatch(name):
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
