"""The files of a guest, as a session reaches them. Paths are absolute inside the guest, whose kernel resolves them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

# Expected of a file whose content does not matter; such a write comes after those that expect some content, or before
# them.
ANY_CONTENT = "any"


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry. Names are decoded with surrogateescape; `type` is file, directory, symlink or other.

    `is_virtual`: the kernel generates the content when it is read (/proc, /sys), so that `size` is meaningless; only
    set by `stat`.
    """

    name: str
    path: str
    type: str
    size: int
    mode: int
    modified: float  # seconds since the epoch
    target: str | None = None
    is_virtual: bool = False


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry below a directory. `path` is relative to it, decoded with surrogateescape.

    `type` is directory, or file for anything else; of a symbolic link, what it leads to (without a target: file).
    `is_regular`: reading it neither blocks nor affects a device.
    """

    path: str
    type: str
    size: int
    modified: float  # seconds since the epoch
    is_regular: bool
    target: str | None = None  # of a symbolic link


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of the guest's writable disk."""

    total_bytes: int
    used_bytes: int
    available_bytes: int

    def limited_to(self, size: int) -> DiskUsage:
        """Return the part of a guest's report that can be true for a disk of `size` bytes."""
        total = max(0, min(self.total_bytes, size))
        used = max(0, min(self.used_bytes, total))
        return DiskUsage(total, used, max(0, min(self.available_bytes, total - used)))


class FileSession(ABC):
    """The files of one guest. Raises only vmbackend.errors: GuestUnreachable if the channel fails, and those named."""

    @abstractmethod
    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        """Return the first `limit` entries by name after the name `after`, and whether there are more.

        Names are ordered by their bytes; those that the platform makes are left out. Fewer, but at least one, if their
        paths and targets have more than 4 MiB together. Raise GuestPathNotFound, GuestPathInvalid (no directory).
        """

    @abstractmethod
    async def walk(
        self, path: str, *, depth: int, limit: int, ignore: Sequence[str] = ()
    ) -> tuple[list[TreeEntry], bool]:
        """Return the entries below a directory, each before those below it, by name; and whether there are more than
        `limit`.

        `depth` 1: its own entries only. `ignore`: patterns in the syntax of gitignore; what they match is neither
        listed nor entered. Symbolic links and other file systems are not entered. Entries with very long paths count
        for more. Raise GuestPathNotFound, GuestPathInvalid (not a directory), DeadlineExceeded.
        """

    @abstractmethod
    def walk_streamed(self, path: str, *, depth: int, ignore: Sequence[str] = ()) -> AsyncIterator[list[TreeEntry]]:
        """Yield what `walk` returns, of any number of entries, in lists as the guest finds them, in constant memory.

        Raise GuestPathNotFound, GuestPathInvalid before the first list; GuestUnreachable, DeadlineExceeded (more than
        an hour).
        """

    @abstractmethod
    async def describe_files(self, path: str, names: Sequence[str]) -> list[TreeEntry]:
        """Return the entries of these paths below a directory, in their order; those that are gone are left out."""

    @abstractmethod
    async def hash_files(self, path: str, names: Sequence[str]) -> dict[str, str]:
        """Return SHA-256 in hexadecimal of regular files below a directory, by name, of those that could be read in
        time.
        """

    @abstractmethod
    async def stat(self, path: str) -> Entry:
        """Return the entry at `path`; follows symbolic links. Raise GuestPathNotFound."""

    @abstractmethod
    async def stat_link(self, path: str) -> Entry:
        """Return the entry at `path`, and of a symbolic link its own, with its target. Raise GuestPathNotFound."""

    @abstractmethod
    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yield chunks of a regular file (at most 256 KiB each), several requests in flight, constant memory.

        A file that shrinks during the transfer ends early. A virtual file is read completely first, up to 16 MiB.
        Raise GuestPathNotFound, GuestPathInvalid (not a regular file, or not readable).
        """

    @abstractmethod
    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        replace: bool = True,
        expected: str | None = None,
    ) -> int:
        """Write atomically: readers see the old file or the complete new one. Return the size in bytes once the file
        and its name are on the disk.

        Missing parents are created and stay; an existing file's mode and owner are kept if `mode` is None, its other
        hard links keep the old content; through a symbolic link its target is written. On any failure the old file
        stays and the partial one is removed, by the guest if this process or the connection died, at its next start if
        the guest itself died. Raise GuestPathInvalid (a directory or anything else
        that is not a regular file, a link with a missing target, a read-only file system), GuestDiskFull. If the
        channel fails after the rename, GuestUnreachable is raised and the new file may be there.

        Without `replace` the path must not exist, be it a link without a target: of two such writes at once one raises
        GuestPathExists.

        `expected`: the SHA-256, in hexadecimal, of what the file must have when it is replaced; else GuestFileChanged
        is raised. All writes with `expected`, or with ANY_CONTENT, follow one another, those of other processes too:
        none is lost. (Not in a machine that was started with an older kit.)
        """

    @abstractmethod
    async def append(self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None) -> int:
        """Write to the end of a file, which is created if there is none; return its size once it is on the disk.

        The file is opened once, so that of two writers at once neither overwrites the other. `mode` is given to the
        file, also to one that was there. A failure may leave a part of the chunks. Raise what `write` raises, and
        GuestPathNotFound (no directory for it).
        """

    @abstractmethod
    def archive(self, path: str, said: bytearray | None = None) -> AsyncIterator[bytes]:
        """Yield a directory with all that it contains, as a tar archive that the guest makes while it is read.

        `said` gets the first 64 KiB of what the guest's program says of what it leaves out (`left_out.py`).

        Names in it are relative to the directory and begin with `./`; symbolic links are not followed. What the guest
        sends may be anything: whether the archive is whole is the receiver's to check, as what cannot be read is left
        out and a file that shrinks ends it. A reader that stops ends the guest's program. Raise GuestPathNotFound,
        GuestPathInvalid (not a directory), DeadlineExceeded (more than an hour).
        """

    @abstractmethod
    async def make_directory(self, path: str, *, mode: int | None = None) -> None:
        """Create a directory and its missing parents; return when they are on the disk. `mode`: of the last one.

        Raise GuestPathExists, GuestPathInvalid, GuestDiskFull; parents that were created stay.
        """

    @abstractmethod
    async def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory with all that it contains; return when the disk knows it.

        Raise GuestPathNotFound, GuestPathInvalid (the root, a mount point, read-only), DeadlineExceeded; of a
        directory a part may be gone then.
        """

    @abstractmethod
    async def rename(self, source: str, destination: str) -> None:
        """Rename, or move, a file, a link or a directory; return when the disk knows the new name.

        Atomic within one file system; between two, and for directories of the machine's image, what is moved is copied
        and then removed, and a failure may leave a part of the copy. Raise GuestPathExists (the destination),
        GuestPathNotFound (the source, or the destination's parent), GuestPathInvalid, DeadlineExceeded.
        """

    @abstractmethod
    async def disk_usage(self) -> DiskUsage:
        """Return usage of the writable disk, not of the overlay."""
