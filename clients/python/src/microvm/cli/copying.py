"""Copies between this machine and a workspace. Names in a workspace are data: nothing leaves the target."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import join as joined
from posixpath import normpath
from time import sleep

from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.guest_tar import ArchiveOfGuest, is_passing, take_archive
from microvm.cli.packing import FolderPacker
from microvm.cli.transferring import ArchiveOfTransfer, has_plain_name, send_folder, transfer_files
from microvm.cli.unpacking import Unpacker, is_safe_name
from microvm.errors import ApiError, ConnectionFailed
from microvm.sync.client import Microvm
from microvm.transfers import Progress

# Seconds before a folder's stream begins again; each time the service itself is waited for as well.
WAITS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
CHANGED = ("path_not_found", "path_invalid")  # it is not there, or is no folder


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
    """The result of a copy: the files, and those that were left out, with the reason."""

    files: int = 0
    size: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Copier:
    """Copies to and from one workspace. `progress_of` makes the progress of one file from its name and size.

    `client` goes on after a restart of the service; `first` asks at the beginning, and says at once where none is.
    """

    client: Microvm
    workspace: str
    progress_of: Callable[[str, int | None], Progress]
    first: Microvm
    say: Callable[[str], None] = field(default=lambda _: None)
    done: Copied = field(default_factory=Copied)

    def upload(self, source: Path, target: str, *, recursive: bool) -> None:
        """A file or, with `recursive`, a folder. Into `target` where that is a folder, or ends with a slash.

        Raises CommandError, ApiError, ConnectionFailed, OSError; what is there stays as it was then.
        """
        if not source.exists():
            raise CommandError(f"{source} does not exist.", "Check the path.", ExitCode.NOT_FOUND)
        if source.is_dir() and not recursive:
            raise CommandError(f"{source} is a folder.", "Copy it with -r.", ExitCode.USAGE)
        if self._is_remote_folder(target) or target.endswith("/"):
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

    def download(self, source: str, target: Path, *, recursive: bool) -> None:
        """A file or, with `recursive`, a folder. Into `target` where that is a folder.

        Raises CommandError, ApiError, ConnectionFailed, OSError; what was copied before stays.
        """
        is_folder = self._is_remote_folder(source)
        if is_folder and not recursive:
            raise CommandError(f"{source} is a folder.", "Copy it with -r.", ExitCode.USAGE)
        if target.is_dir():
            name = source.rstrip("/").rpartition("/")[2]
            if not (is_safe_name(name) and _is_utf8(name)):
                raise CommandError(f"{source} has no name for a copy in {target}.", "Name the target.", ExitCode.USAGE)
            target = target / name
        if is_folder:
            self._download_folder(source, target)
        else:
            progress = self.progress_of(target.name, None)
            size = self.client.files.download(self.workspace, source, target, progress=progress)
            self.done = Copied(1, size)

    def _upload_file(self, source: Path, target: str) -> None:
        progress = self.progress_of(source.name, source.stat().st_size)
        written = self.client.files.upload(self.workspace, target, source, progress=progress)
        self.done = Copied(1, written["size"])

    def _upload_folder(self, source: Path, target: str) -> None:
        packers: list[FolderPacker] = []
        files = transfer_files(self.client, self.workspace)

        def made() -> FolderPacker:
            packers.append(FolderPacker(source, self.progress_of, sets_apart=files is not None))
            return packers[-1]

        def copy() -> None:
            if files is not None:
                send_folder(self.client, files, self.workspace, target, made())
            else:
                take_archive(self.client, self.workspace, target, lambda: made().parts())

        self._until_whole(copy)
        self.done = Copied(packers[-1].files, packers[-1].size, packers[-1].skipped)

    def _download_folder(self, source: str, target: Path) -> None:
        unpacker = Unpacker(target, source, self.progress_of)
        source = normpath(source)
        files = transfer_files(self.client, self.workspace)
        # A transfer ends where a file cannot be read; the second attempt is the program's, which names such files.
        ways = [files] if files is not None and has_plain_name(files, source) else []

        def opened() -> ArchiveOfGuest | ArchiveOfTransfer:
            if ways:
                unpacker.prefix = f"{source.strip('/')}/"
                return ArchiveOfTransfer(ways.pop(), source)
            unpacker.prefix = "./"
            return ArchiveOfGuest(self.client, self.workspace, source)

        def copy() -> None:
            with closing(opened()) as archive:
                try:
                    unpacker.unpack(archive)
                except CommandError:
                    archive.require_success()  # else it has said why there is no archive
                    raise
                unpacker.skipped += [(joined(source, name), reason) for name, reason in archive.finish()]

        try:
            self._until_whole(copy)
        finally:
            unpacker.finish()
            self.done = Copied(unpacker.files, unpacker.size, unpacker.skipped)

    def _until_whole(self, copy: Callable[[], None]) -> None:
        """A stream whose service went away begins again once that is back. Raises what the last attempt does."""
        for wait in (*WAITS, None):
            try:
                copy()
                return
            except (ApiError, ConnectionFailed) as error:
                if wait is None or not is_passing(error):
                    raise
            self.say("The connection was lost; the copy begins again.")
            sleep(wait)
            self.client.workspaces.get(self.workspace)

    def _is_remote_folder(self, path: str) -> bool:
        if not path.strip("/"):
            return True
        try:
            next(iter(self.first.files.list(self.workspace, path=path, page_size=1)), None)
        except ApiError as error:
            if error.code not in CHANGED:
                raise
            return False
        return True


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
