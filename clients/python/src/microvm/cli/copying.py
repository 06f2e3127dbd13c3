"""Copies between this machine and a workspace. Names in a workspace are data: nothing leaves the target."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import join as joined

from microvm.cli.failures import CommandError, ExitCode
from microvm.errors import ApiError
from microvm.sync.client import Microvm
from microvm.transfers import Progress
from microvm.types.files import FileEntry

MOST_DEPTH = 64  # folders in folders
MOST_ARGUMENTS = 100  # paths of one command in the workspace
CHANGED = ("path_not_found", "path_invalid")  # it is not there, or is no file, or no folder


@dataclass(frozen=True)
class Place:
    """One side of a copy. `workspace` None: on this machine. `path` `-`: a standard stream."""

    workspace: str | None
    path: str

    @property
    def is_stream(self) -> bool:
        return self.workspace is None and self.path == "-"


def parse_place(text: str) -> Place:
    """`NAME:/path` is in a workspace, all else here; a path with a colon is written `./a:b`. Raises CommandError."""
    name, separator, path = text.partition(":")
    if not separator or "/" in name or not name:
        return Place(None, text)
    if not path.startswith("/"):
        hint = f"Write {name}:/{path}, or ./{text} for a file here."
        raise CommandError(f"{text!r} has no absolute path.", hint, ExitCode.USAGE)
    return Place(name, path)


@dataclass
class Copied:
    """What was done, and what was left out with the reason."""

    files: int = 0
    size: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Copier:
    """Copies to and from one workspace. `progress_of` makes the progress of one file from its name and size."""

    client: Microvm
    workspace: str
    progress_of: Callable[[str, int | None], Progress]
    done: Copied = field(default_factory=Copied)
    _executable: list[str] = field(default_factory=list)

    # To the workspace

    def upload(self, source: Path, target: str, *, recursive: bool) -> None:
        """A file or, with `recursive`, a folder. Into `target` where that is a folder, or ends with a slash.

        Raises CommandError, ApiError, ConnectionFailed, OSError; what was copied before stays.
        """
        if not source.exists():
            raise CommandError(f"{source} does not exist.", "Check the path.", ExitCode.NOT_FOUND)
        if source.is_dir() and not recursive:
            raise CommandError(f"{source} is a folder.", "Copy it with -r.", ExitCode.USAGE)
        if target.endswith("/") or self._is_remote_folder(target):
            target = joined(target, source.resolve().name)
        if not _is_utf8(target):
            raise CommandError(f"{target} is no UTF-8.", "Name the target.", ExitCode.USAGE)
        if source.is_dir():
            self._upload_folder(source, target)
        elif source.is_file():
            self._upload_file(source, target)
        else:
            hint = "Pipe what it gives: ws cp - WORKSPACE:/path"
            raise CommandError(f"{source} is neither a file nor a folder.", hint, ExitCode.USAGE)
        self._set_executable()

    def _upload_folder(self, source: Path, target: str) -> None:
        empty: list[str] = []
        for folder, folders, names in os.walk(source, onerror=self._skip_unreadable):
            here = Path(folder)
            remote = joined(target, here.relative_to(source).as_posix()) if here != source else target
            for name in sorted(names):
                self._upload_entry(here / name, joined(remote, name))
            for name in sorted(folders):
                if (here / name).is_symlink():
                    self._skip(str(here / name), "a symbolic link")
            if not names and not folders:
                empty.append(remote)
        self._run_for(["mkdir", "-p", "--"], empty)

    def _upload_entry(self, source: Path, target: str) -> None:
        if source.is_symlink():
            self._skip(str(source), "a symbolic link")
        elif not source.is_file():
            self._skip(str(source), "no regular file")
        elif not _is_utf8(target):
            self._skip(str(source), "its name is no UTF-8")
        else:
            self._upload_file(source, target)

    def _upload_file(self, source: Path, target: str) -> None:
        state = source.stat()
        progress = self.progress_of(source.name, state.st_size)
        written = self.client.files.upload(self.workspace, target, source, progress=progress)
        self.done.files += 1
        self.done.size += written["size"]
        if state.st_mode & stat.S_IXUSR:
            self._executable.append(target)

    def _set_executable(self) -> None:
        paths, self._executable = self._executable, []
        self._run_for(["chmod", "+x", "--"], paths)

    def _run_for(self, words: list[str], paths: list[str]) -> None:
        for start in range(0, len(paths), MOST_ARGUMENTS):
            part = paths[start : start + MOST_ARGUMENTS]
            relative = [f"./{path.lstrip('/')}" for path in part]
            result = self.client.workspaces.exec(self.workspace, cmd=[*words, *relative], working_dir="/")
            if result["exit_code"]:
                self.done.skipped += [(path, f"{words[0]}: {result['stderr'].strip()}") for path in part]

    def _is_remote_folder(self, path: str) -> bool:
        if not path.strip("/"):
            return True
        try:
            next(iter(self.client.files.list(self.workspace, path=path, page_size=1)), None)
        except ApiError as error:
            if error.code not in CHANGED:
                raise
            return False
        return True

    # From the workspace

    def download(self, source: str, target: Path, *, recursive: bool) -> None:
        """A file or, with `recursive`, a folder. Into `target` where that is a folder.

        Raises CommandError, ApiError, ConnectionFailed, OSError; what was copied before stays.
        """
        is_folder = self._is_remote_folder(source)
        if is_folder and not recursive:
            raise CommandError(f"{source} is a folder.", "Copy it with -r.", ExitCode.USAGE)
        if target.is_dir():
            name = source.rstrip("/").rpartition("/")[2]
            if not is_safe_name(name):
                raise CommandError(f"{source} has no name for a copy in {target}.", "Name the target.", ExitCode.USAGE)
            target = target / name
        if is_folder:
            self._download_folder(source, target, 0)
        else:
            self._download_file(source, target, None)

    def _download_folder(self, source: str, target: Path, depth: int) -> None:
        if depth > MOST_DEPTH:
            self._skip(source, f"more than {MOST_DEPTH} folders in each other")
            return
        target.mkdir(exist_ok=True, parents=depth == 0)
        for entry in self.client.files.list(self.workspace, path=source):
            if self._is_usable(source, entry, target):
                self._download_entry(source, entry, target, depth)

    def _download_entry(self, source: str, entry: FileEntry, target: Path, depth: int) -> None:
        path, place = joined(source, entry["name"]), target / entry["name"]
        try:
            if entry["type"] == "directory":
                self._download_folder(path, place, depth + 1)
            elif entry["type"] == "file":
                self._download_file(path, place, entry)
            else:
                self._skip(path, "a symbolic link" if entry["type"] == "symlink" else "no regular file")
        except ApiError as error:
            if error.code not in CHANGED:
                raise
            self._skip(path, "it was removed or replaced during the copy")

    def _is_usable(self, source: str, entry: FileEntry, target: Path) -> bool:
        """Whether the entry names something directly in its folder. A hostile guest may name anything."""
        if "encoded_path" in entry:
            self._skip(entry["path"], "its name is no UTF-8")
        elif not is_safe_name(entry["name"]):
            self._skip(f"{source}/{entry['name']}", "it is no name of a file")
        elif _is_of_other_type(target / entry["name"], entry["type"]):
            self._skip(f"{source}/{entry['name']}", "something else of this name is here")
        else:
            return True
        return False

    def _download_file(self, source: str, target: Path, entry: FileEntry | None) -> None:
        progress = self.progress_of(target.name, entry["size"] if entry else None)
        self.done.size += self.client.files.download(self.workspace, source, target, progress=progress)
        self.done.files += 1
        if entry and entry["mode"] & stat.S_IXUSR:
            target.chmod(target.stat().st_mode | 0o100)

    def _skip(self, path: str, reason: str) -> None:
        self.done.skipped.append((path, reason))

    def _skip_unreadable(self, error: OSError) -> None:
        self._skip(str(error.filename), error.strerror or "it cannot be read")


def _is_of_other_type(place: Path, kind: str) -> bool:
    """Whether what is there cannot take the copy: a link, a folder or a device in place of a file, or the reverse."""
    return place.is_symlink() or (place.exists() and not (place.is_dir() if kind == "directory" else place.is_file()))


def is_safe_name(name: str) -> bool:
    """Whether it names one entry of a folder: no path, no parent, nothing hidden behind a NUL."""
    return bool(name) and name not in (".", "..") and not set("/\0") & set(name) and _is_utf8(name)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
