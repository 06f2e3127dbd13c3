"""Writer of files below a folder's descriptor. No component of a path may be a link."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256

from common.content_times import content_time_ns
from pages.releases.byte_source import PIECE, ByteSource
from pages.releases.errors import ExportLimit
from pages.releases.limits import ExportLimits
from pages.releases.received import ReceivedFile

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A file up to this size is read before it is written, because a release may have it already.
_HELD_BYTES = 1 << 20


class FolderWriter:
    """Writer of files and folders below a descriptor. It owns one other descriptor, the last folder. Use it as a
    context.
    """

    def __init__(self, folder_fd: int, known: Mapping[str, str], limits: ExportLimits) -> None:
        """Take `known`, paths of files by digest: equal files become links to them."""
        self._root = folder_fd
        self._known = known
        self._folders_left = limits.files
        self._steps_left = limits.path_steps
        self._last: tuple[str, int] | None = None
        # Files of this export by digest: equal files take the disk once, as they are counted.
        self._received: dict[str, str] = {}
        self.written: set[str] = set()

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave_last()

    def write_file(self, path: str, source: ByteSource, size: int) -> ReceivedFile:
        """Write `size` bytes of the source.

        Raise FileExistsError or NotADirectoryError if the path is taken, before anything of the source is read. Raise
        ExportLimit for too many folders or steps to them, ExportDamaged, OSError: the file may then be incomplete.
        """
        folder, name = self._folder_of(path)
        if size > _HELD_BYTES:
            return self._write_large(path, folder, source, size)
        if _is_taken(folder, name):
            raise FileExistsError(path)
        data = source.read_exactly(size)
        digest = sha256(data).hexdigest()
        if not self._link_known(folder, name, digest) and not self._link_received(folder, name, digest):
            _write_new(folder, name, data, digest)
            self._received[digest] = path
        self._note_written(path, digest)
        return ReceivedFile(digest, size)

    def link_file(self, existing: str, path: str) -> None:
        """Make `path` another name of a file written before. Raise ExportLimit, and OSError (FileExistsError)."""
        folder, name = self._folder_of(path)
        self._link_below(existing, folder, name)
        if existing in self.written:
            self.written.add(path)

    def _link_below(self, existing: str, folder: int, name: str) -> None:
        above, _, last = existing.rpartition("/")
        self._count_steps(above)
        source_fd = _open_folder(self._root, above)
        try:
            os.link(last, name, src_dir_fd=source_fd, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(source_fd)

    def _write_large(self, path: str, folder: int, source: ByteSource, size: int) -> ReceivedFile:
        name = path.rpartition("/")[2]
        fd = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
        try:
            digest = _copy_hashed(source, size, fd)
            _finish_file(fd, digest)
        finally:
            os.close(fd)
        # No name of the archive begins with a dot here: names are checked. This name is gone at once.
        if self._link_known(folder, ".known", digest) or self._link_received(folder, ".known", digest):
            os.rename(".known", name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            self._received[digest] = path
        self._note_written(path, digest)
        return ReceivedFile(digest, size)

    def _link_known(self, folder: int, name: str, digest: str) -> bool:
        """Link a known file.

        Return False if the link cannot be made (too many links, or the release was removed): then the file is written.
        """
        known = self._known.get(digest)
        if known is None:
            return False
        with suppress(OSError):
            os.link(known, name, dst_dir_fd=folder, follow_symlinks=False)
            return True
        return False

    def _link_received(self, folder: int, name: str, digest: str) -> bool:
        """Do the same for a file of this export."""
        received = self._received.get(digest)
        if received is None:
            return False
        with suppress(OSError):
            self._link_below(received, folder, name)
            return True
        return False

    def _note_written(self, path: str, digest: str) -> None:
        """Note each name of new content: the first name may be taken out of the release before it is flushed."""
        if digest in self._received:
            self.written.add(path)

    def _folder_of(self, path: str) -> tuple[int, str]:
        """Return the folder's descriptor and the file's name.

        An archive lists a folder's files one after another, so the last folder is mostly the wanted one.
        """
        above, _, name = path.rpartition("/")
        if self._last is None or self._last[0] != above:
            self._leave_last()
            self._last = (above, self._make_folders(above))
        return self._last[1], name

    def _leave_last(self) -> None:
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def _count_steps(self, path: str) -> None:
        """Count the folders of a path. Each is opened: files in several deep folders by turns would take minutes.

        Raise ExportLimit.
        """
        self._steps_left -= path.count("/") + 1
        if self._steps_left < 0:
            raise ExportLimit("path_steps", path)

    def _make_folders(self, path: str) -> int:
        self._count_steps(path)
        fd = os.open(".", _FOLDER, dir_fd=self._root)
        for part in path.split("/") if path else ():
            try:
                below = self._enter(fd, part, path)
            finally:
                os.close(fd)
            fd = below
        return fd

    def _enter(self, fd: int, part: str, path: str) -> int:
        try:
            return os.open(part, _FOLDER, dir_fd=fd)
        except FileNotFoundError:
            if not self._folders_left:
                raise ExportLimit("files", path) from None
            self._folders_left -= 1
            os.mkdir(part, 0o755, dir_fd=fd)
            return os.open(part, _FOLDER, dir_fd=fd)


def _is_taken(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write_new(folder: int, name: str, data: bytes, digest: str) -> None:
    fd = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        _write_all(fd, data)
        _finish_file(fd, digest)
    finally:
        os.close(fd)


def _open_folder(root: int, path: str) -> int:
    fd = os.open(".", _FOLDER, dir_fd=root)
    for part in path.split("/") if path else ():
        try:
            below = os.open(part, _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def _copy_hashed(source: ByteSource, size: int, fd: int) -> str:
    digest = sha256()
    while size:
        piece = source.read_some(min(size, PIECE))
        digest.update(piece)
        _write_all(fd, piece)
        size -= len(piece)
    return digest.hexdigest()


def _write_all(fd: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _finish_file(fd: int, digest: str) -> None:
    os.fchmod(fd, 0o644)
    time = content_time_ns(digest)
    os.utime(fd, ns=(time, time))
