"""A tar archive that a workspace sends, written below a folder of this machine and nowhere else.

The archive may say anything. No entry is written through a link, its own or one that was here; a link is made only
where it leads to something in the folder.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol
from uuid import uuid4

from microvm.cli.failures import CommandError
from microvm.transfers import CHUNK, Progress, current_umask, mode_of_copy, open_private

MOST_DEPTH = 64  # folders in folders
MOST_NAME = 64 << 10  # bytes
LATEST = 1 << 33  # of times, in seconds: all file systems have it
_REFUSED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_SPARSE)
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_BROKEN = (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError)


class Source(Protocol):
    """The source of an archive."""

    def read(self, size: int, /) -> bytes: ...


class GuestEntry(tarfile.TarInfo):
    """A header that takes no more memory than a name does."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _REFUSED or (self.type in _LONG and self.size > MOST_NAME):
            raise tarfile.ReadError("It has headers that no copy has.")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


@dataclass
class Unpacker:
    """Writes one archive below `target`. `skipped`: what is left out, by its path in the workspace, with the reason.

    `prefix`: the beginning of all names in the archive, with a slash at its end.
    """

    target: Path
    source: str
    progress_of: Callable[[str, int | None], Progress]
    files: int = 0
    size: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    prefix: str = "./"
    _folders: list[tuple[Path, int]] = field(default_factory=list)  # new ones, and the modes that they get at last

    def unpack(self, source: Source) -> None:
        """Raises CommandError for what is no archive, OSError where the target cannot be made, and what `source` does.

        What was written before stays; no file is half there. It may be called again.
        """
        self.files, self.size, self.skipped = 0, 0, []
        self._make_folder(self.target, 0o755, parents=True)
        try:
            given: Any = source
            with tarfile.open(
                fileobj=given, mode="r|", tarinfo=GuestEntry, encoding="utf-8", errors="surrogateescape"
            ) as archive:
                for entry in archive:
                    self._take(archive, entry)
                    archive.members = []  # type: ignore[attr-defined]  # it keeps them all
        except _BROKEN as error:
            hint = "What was written before is whole; copy single files with `ws cp`."
            raise CommandError(f"The workspace sent an archive that cannot be read: {error}", hint) from error

    def finish(self) -> None:
        """New folders get their modes, which may forbid to write in them."""
        for path, mode in reversed(self._folders):
            path.chmod(mode)

    def _take(self, archive: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        name = entry.name.removeprefix(self.prefix).rstrip("/")
        if name in ("", self.prefix.rstrip("/")):
            self._set_root_mode(entry)
            return
        place = self.target.joinpath(*name.split("/"))
        try:
            reason = self._problem_of(name) or self._write(archive, entry, place)
        except OSError as error:
            reason = error.strerror or "it cannot be written"
        if reason:
            self.skipped.append((f"{self.source.rstrip('/')}/{name}", reason))

    def _problem_of(self, name: str) -> str:
        """Why nothing of this name is written; makes the folders that it lies in."""
        parts = name.split("/")
        if not all(is_safe_name(part) for part in parts):
            return "it is no name of a file"
        if len(parts) > MOST_DEPTH:
            return f"more than {MOST_DEPTH} folders in each other"
        place = self.target
        for part in parts[:-1]:
            place = place / part
            if not _is_there(place):
                self._make_folder(place, 0o755)
            elif place.is_symlink() or not place.is_dir():
                return "something else of this name is here"
        return ""

    def _write(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, place: Path) -> str:
        """Why it is left out; empty where it is written."""
        if entry.isdir():
            return self._write_folder(entry, place)
        if entry.issym():
            return self._write_link(entry, place)
        if not (entry.isreg() or entry.islnk()):
            return "no regular file, folder or link"
        if _is_there(place) and not stat.S_ISREG(place.lstat().st_mode):
            return "something else of this name is here"
        content = archive.extractfile(entry) if entry.isreg() else None
        return self._write_file(entry, place, content) if content else self._write_hard_link(entry, place)

    def _write_folder(self, entry: tarfile.TarInfo, place: Path) -> str:
        if not _is_there(place):
            self._make_folder(place, entry.mode)
        elif place.is_symlink() or not place.is_dir():
            return "something else of this name is here"
        return ""

    def _write_file(self, entry: tarfile.TarInfo, place: Path, content: IO[bytes]) -> str:
        mode = mode_of_copy(place, entry.mode)
        part = place.with_name(f".{uuid4().hex}.part")
        progress, done = self.progress_of(place.name, entry.size), 0
        try:
            with open_private(part) as sink:
                while block := content.read(CHUNK):
                    sink.write(block)
                    done += len(block)
                    progress(done, entry.size)
            part.chmod(mode)
            time = min(max(0, int(entry.mtime)), LATEST)
            os.utime(part, (time, time))
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
        self.files += 1
        self.size += done
        return ""

    def _write_link(self, entry: tarfile.TarInfo, place: Path) -> str:
        depth = len(place.relative_to(self.target).parts) - 1
        if leads_out(depth, entry.linkname):
            return f"a link that leads out of the folder, to {entry.linkname}"
        is_there = place.is_symlink() and os.readlink(place) == entry.linkname  # noqa: PTH115 - as it is written
        if _is_there(place) and not is_there:
            return "something else of this name is here"
        if not is_there:
            place.symlink_to(entry.linkname)
        self.files += 1
        return ""

    def _write_hard_link(self, entry: tarfile.TarInfo, place: Path) -> str:
        """The file that it is a link to was written before, if it was."""
        name = entry.linkname.removeprefix(self.prefix)
        former = self.target.joinpath(*name.split("/"))
        if self._problem_of(name) or not _is_there(former) or not stat.S_ISREG(former.lstat().st_mode):
            return "a link to what was left out"
        part = place.with_name(f".{uuid4().hex}.part")
        try:
            os.link(former, part, follow_symlinks=False)
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
        self.files += 1
        return ""

    def _make_folder(self, place: Path, mode: int, *, parents: bool = False) -> None:
        if place.is_dir():
            return
        place.mkdir(mode=0o700, parents=parents)
        self._folders.append((place, mode & 0o777 & ~current_umask()))

    def _set_root_mode(self, entry: tarfile.TarInfo) -> None:
        if self._folders and self._folders[0][0] == self.target:
            self._folders[0] = (self.target, entry.mode & 0o777 & ~current_umask())


def leads_out(depth: int, target: str) -> bool:
    """Whether a link that lies in so many folders below a folder may lead to something that is not below the folder.

    Those are real folders. So it goes up as far as these, and nowhere up again: a link on its way may lead up itself.
    """
    parts = target.split("/")
    ups = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or "\0" in target or not target or ups > depth or ".." in parts[ups:]


def is_safe_name(name: str) -> bool:
    """Whether it names one entry of a folder: no path, no parent, nothing hidden behind a NUL."""
    return bool(name) and name not in (".", "..") and not set("/\0") & set(name)


def _is_there(place: Path) -> bool:
    return os.path.lexists(place)
