"""A folder of this machine as a tar archive, made while it is sent."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from microvm.cli.unpacking import leads_out
from microvm.transfers import CHUNK, Progress

ROOT = "copy"  # its name in the archive
_BLOCK = tarfile.BLOCKSIZE


@dataclass
class FolderPacker:
    """The archive of one folder. `skipped`: what is left out, or changed while it was copied, with the reason.

    Names are bytes as they are here. Owners are left out, and of modes what says more than who may read, write and
    execute. Hard links stay links within the folder. `sets_apart`: links that lead out of the folder have an archive of
    their own.
    """

    source: Path
    progress_of: Callable[[str, int | None], Progress]
    files: int = 0
    size: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    sets_apart: bool = False
    _apart: list[tarfile.TarInfo] = field(default_factory=list)
    _links: dict[tuple[int, int], str] = field(default_factory=dict)

    def parts(self) -> Iterator[bytes]:
        """Yield parts of about CHUNK bytes. Raise OSError."""
        buffer = bytearray()
        for piece in self._pieces():
            buffer += piece
            while len(buffer) >= CHUNK:
                yield bytes(buffer[:CHUNK])
                del buffer[:CHUNK]
        yield bytes(buffer)

    def apart_parts(self) -> Iterator[bytes]:
        """Yield the archive of what was set apart, once `parts` has ended."""
        for info in self._apart:
            yield _header(info)
        yield bytes(2 * _BLOCK)

    def _pieces(self) -> Iterator[bytes]:
        for folder, folders, names in os.walk(self.source, onerror=self._skip_unreadable):
            here = Path(folder)
            yield from self._entry(here)
            linked = [name for name in folders if (here / name).is_symlink()]
            for name in sorted([*linked, *names]):
                yield from self._entry(here / name)
        yield bytes(2 * _BLOCK)

    def _entry(self, path: Path) -> Iterator[bytes]:
        try:
            state = path.stat() if path == self.source else path.lstat()
            info = self._info(path, state)
            if info is None:
                self._skip(path, "no regular file, folder or link")
            elif info.isreg():
                yield from self._file(path, info)
            else:
                self.files += not info.isdir()
                yield from self._without_data(info)
        except OSError as error:
            self._skip(path, error.strerror or "it cannot be read")

    def _info(self, path: Path, state: os.stat_result) -> tarfile.TarInfo | None:
        """None for what is not copied."""
        below = path.relative_to(self.source).as_posix()
        info = tarfile.TarInfo(ROOT if path == self.source else f"{ROOT}/{below}")
        info.mode, info.mtime = stat.S_IMODE(state.st_mode) & 0o777, max(0, int(state.st_mtime))
        if stat.S_ISDIR(state.st_mode):
            info.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(state.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115 - as it is written
        elif stat.S_ISREG(state.st_mode):
            info.size = state.st_size
            key = (state.st_dev, state.st_ino)
            if key in self._links:
                info.type, info.linkname, info.size = tarfile.LNKTYPE, self._links[key], 0
        else:
            return None
        return info

    def _without_data(self, info: tarfile.TarInfo) -> Iterator[bytes]:
        if self.sets_apart and info.issym() and leads_out(info.name.count("/"), info.linkname):
            self._apart.append(info)
        else:
            yield _header(info)

    def _file(self, path: Path, info: tarfile.TarInfo) -> Iterator[bytes]:
        """As many bytes as it had at first: what it lacks by then is zeros, and it is named."""
        with path.open("rb") as opened:
            progress, done = self.progress_of(path.name, info.size), 0
            state = os.fstat(opened.fileno())
            if state.st_nlink > 1:
                self._links[state.st_dev, state.st_ino] = info.name
            yield _header(info)
            while done < info.size and (part := opened.read(min(CHUNK, info.size - done))):
                yield part
                done += len(part)
                progress(done, info.size)
        yield bytes(info.size - done + -info.size % _BLOCK)
        self.files += 1
        self.size += info.size
        if done < info.size:
            self._skip(path, "it became shorter while it was copied")

    def _skip(self, path: Path, reason: str) -> None:
        self.skipped.append((str(path), reason))

    def _skip_unreadable(self, error: OSError) -> None:
        self.skipped.append((str(error.filename), error.strerror or "it cannot be read"))


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
