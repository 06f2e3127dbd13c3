"""Progress of a transfer, and what the two sides of the client share of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from errno import EINVAL, ELOOP
from pathlib import Path
from typing import BinaryIO, Protocol

from microvm.errors import ConnectionFailed

Progress = Callable[[int, int | None], None]
CHUNK = 256 << 10  # bytes
RAW = "application/octet-stream"
GZIP = "application/gzip"
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class Sink(Protocol):
    """The target of a download: a file, or `ForwardSink`."""

    def write(self, part: bytes, /) -> object: ...

    def seek(self, offset: int, /) -> object: ...

    def truncate(self) -> object: ...


class ForwardSink:
    """A pipe: what was written cannot be taken back."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._is_begun = False

    def write(self, part: bytes) -> None:
        self._is_begun = True
        self._sink.write(part)

    def seek(self, offset: int) -> None:
        """To the beginning. Raises ConnectionFailed where bytes were written."""
        if self._is_begun:
            raise ConnectionFailed("The connection was lost, and the file cannot be read on where it was.")

    def truncate(self) -> None:
        """Nothing was written: `seek` says so."""


@dataclass
class Download:
    """A file on its way: `done` bytes of `total` (None: not named) are in `sink`."""

    sink: Sink
    progress: Progress | None = None
    done: int = 0
    total: int | None = None
    tag: str = ""
    mode: int = 0o666  # of the file there, where the service says it

    def headers(self) -> dict[str, str]:
        """Return the headers of the next request: for the missing part, if the file is still the same."""
        if not self.done or not self.tag:
            return {"Accept": RAW}
        return {"Accept": RAW, "Range": f"bytes={self.done}-", "If-Range": self.tag}

    def begin_part(self, status: int, headers: Mapping[str, str]) -> None:
        """Begins with an answer: a part that follows what is there, or the whole file from its first byte."""
        found = _RANGE.fullmatch(headers.get("Content-Range", "")) if status == 206 else None
        self.tag = headers.get("ETag", "")
        if re.fullmatch(r"[0-7]{3,4}", found_mode := headers.get("X-File-Mode", "")):
            self.mode = int(found_mode, 8)
        self.total = total_size(status, headers)
        if found is not None and int(found[1]) == self.done:
            return
        self.sink.seek(0)
        self.sink.truncate()
        self.done = 0

    def add(self, part: bytes) -> None:
        self.sink.write(part)
        self.done += len(part)
        if self.progress is not None:
            self.progress(self.done, self.total)


def total_size(status: int, headers: Mapping[str, str]) -> int | None:
    """The size of the whole file in bytes, by the head of an answer; None where it is not named."""
    if status == 206:
        found = _RANGE.fullmatch(headers.get("Content-Range", ""))
        return int(found[2]) if found else None
    length = headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def replaceable_file(target: str | os.PathLike[str]) -> Path:
    """The file that a download replaces, or makes: of a symbolic link what it leads to.

    Raises OSError for a device, a pipe or a folder, and for links that lead nowhere.
    """
    found = Path(target)
    if found.is_symlink():
        found = Path(os.path.realpath(found))
    if found.is_symlink():
        raise OSError(ELOOP, "It is a symbolic link that leads to itself", str(target))
    if found.exists() and not found.is_file():
        raise OSError(EINVAL, "It is no regular file", str(target))
    return found


def mode_of_copy(former: Path, mode: int) -> int:
    """The mode of a copy: never wider than its source's, nor than that of the file which it replaces."""
    if former.exists():
        return stat.S_IMODE(former.stat().st_mode) & mode & 0o777
    return mode & 0o777 & ~current_umask()


def current_umask() -> int:
    """Return the bits that this process removes from the modes of new files."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def open_private(part: Path) -> BinaryIO:
    """A new file for what may be a secret: no other user reads it before its mode is known."""
    return os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb")
