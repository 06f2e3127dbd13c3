"""Receipt of a guest's folder as a tar stream. The guest may send anything (section 5, Pages)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pages.releases.byte_source import ByteSource, Readable
from pages.releases.errors import ExportLimit
from pages.releases.folder import FolderWriter
from pages.releases.limits import ExportLimits
from pages.releases.links import TAKEN, LinkMade, LinkTree, PendingLink
from pages.releases.names import NameRefused, entry_path
from pages.releases.received import Received, readable_path
from pages.releases.tar_headers import EntryKind, TarEntry, tar_entries

_NOTHING_KNOWN: Mapping[str, str] = {}


def export_receive(
    stream: Readable | Iterable[bytes],
    incoming_dir_fd: int,
    limits: ExportLimits,
    known: Mapping[str, str] = _NOTHING_KNOWN,
    exported: str = "/",
) -> Received:
    """Write the files of a tar stream below a descriptor of an empty folder.

    Files have mode 0644 and times made of their contents; nothing else of the archive is kept. A file whose digest is
    in `known` (a path by hexadecimal SHA-256, on the same file system) becomes a hard link to it. Nothing is flushed to
    the disk: the store does that for all files at once. `exported`: the folder's path in the guest, below which
    absolute links may lead.

    Raise ExportLimit (nothing more of the stream is read), ExportDamaged, OSError, and the stream's own errors. Files
    received until then are left in the folder, which the caller removes.
    """
    with FolderWriter(incoming_dir_fd, known, limits) as folder:
        return _Export(ByteSource(stream), folder, limits, exported).received_files()


class _Export:
    def __init__(self, source: ByteSource, folder: FolderWriter, limits: ExportLimits, exported: str) -> None:
        self._source = source
        self._folder = folder
        self._limits = limits
        self._received = Received()
        self._exported = exported
        self._links: dict[str, PendingLink] = {}
        self._folders: set[str] = set()
        self._entries = 0
        self._skipped_bytes = 0

    def received_files(self) -> Received:
        for entry in tar_entries(self._source, self._limits.path_bytes):
            self._entries += 1
            if self._entries > self._limits.entries:
                raise ExportLimit("files", readable_path(entry.name))
            self._take_entry(entry)
        tree = LinkTree(set(self._received.files), self._links, self._folders, self._limits)
        for link in self._links.values():
            for made in tree.made_of(link):
                self._make_link(made)
        self._received.written = self._folder.written
        return self._received

    def _take_entry(self, entry: TarEntry) -> None:
        try:
            path = entry_path(entry.name)
            if entry.kind is EntryKind.OTHER:
                raise NameRefused(entry.reason)
        except NameRefused as refused:
            self._leave_out(entry, str(refused))
            return
        if entry.kind is EntryKind.FILE:
            self._take_file(entry, path)
        elif entry.kind is not EntryKind.FOLDER:
            self._take_link(entry, path)
        else:
            # Folders are made for files alone: an empty folder cannot be served. But links lead over it.
            self._folders.add(path)
            self._skip_data(entry)

    def _take_file(self, entry: TarEntry, path: str) -> None:
        if not path or path in self._links:
            self._leave_out(entry, TAKEN)
            return
        self._check_limits(path, entry.size)
        try:
            file = self._folder.write_file(path, self._source, entry.size)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            self._leave_out(entry, TAKEN)
            return
        self._received.files[path] = file
        self._received.bytes += file.size

    def _check_limits(self, path: str, size: int) -> None:
        """Raise ExportLimit before anything of the file is read."""
        limits = self._limits
        if size > limits.file_bytes:
            raise ExportLimit("file_bytes", path)
        if self._received.bytes + size > limits.bytes:
            raise ExportLimit("bytes", path)
        if len(self._received.files) >= limits.files:
            raise ExportLimit("files", path)

    def _take_link(self, entry: TarEntry, path: str) -> None:
        if not path or path in self._received.files or path in self._links:
            self._leave_out(entry, TAKEN)
            return
        if entry.kind is EntryKind.HARD_LINK:
            self._links[path] = PendingLink.hard(path, entry.link)
        else:
            self._links[path] = PendingLink.symbolic(path, entry.link, self._exported)

    def _make_link(self, made: LinkMade) -> None:
        reason = made.reason
        if made.file:
            file = self._received.files[made.file]
            # Equal contents take the disk once, but this is one more file for visitors.
            self._check_limits(made.path, file.size)
            try:
                self._folder.link_file(made.file, made.path)
                self._received.files[made.path] = file
                self._received.bytes += file.size
                return
            except (FileExistsError, NotADirectoryError):
                reason = TAKEN
        self._received.skip(made.path, reason)

    def _leave_out(self, entry: TarEntry, reason: str) -> None:
        if entry.name:
            self._received.skip(entry.name, reason)
        self._skip_data(entry)

    def _skip_data(self, entry: TarEntry) -> None:
        self._skipped_bytes += entry.size
        if self._skipped_bytes > self._limits.bytes:
            raise ExportLimit("bytes", readable_path(entry.name))
        self._source.skip(entry.size)
