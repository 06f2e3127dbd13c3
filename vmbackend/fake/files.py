"""The files of the fake driver's guests, in directories of this host. For tests only."""

from __future__ import annotations

import os
import posixpath
import secrets
import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import Path

from vmbackend.driver import MachineState
from vmbackend.errors import GuestPathInvalid, GuestPathNotFound, GuestUnreachable
from vmbackend.fake import trees
from vmbackend.fake.commands import archive_directory, archive_file
from vmbackend.fake.store import Domain, FakeStore
from vmbackend.guest.listing import check_path
from vmbackend.guest.session import DiskUsage, Entry, GuestSession, TreeEntry

_CHUNK = 64 * 1024
_ENTRIES = 1000
# Next to a machine's disk: what a guest sends in place of the archive of any directory, as a hostile one may.
ARCHIVE_FILE = "archive.tar"


class FakeFiles(GuestSession):
    """The part of a session that concerns files. The attributes are those of `FakeGuestSession`."""

    _store: FakeStore
    _id: str
    _disk: Path

    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        place = self._find(path)
        if not place.is_dir():
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        names = trees.names_after(place, after)
        entries = [trees.entry_of(place / name, f"{path.rstrip('/')}/{name}") for name in names[:limit]]
        return entries, len(names) > limit

    async def walk(
        self, path: str, *, depth: int, limit: int, ignore: Sequence[str] = ()
    ) -> tuple[list[TreeEntry], bool]:
        return trees.walk_tree(self._find(path), path, depth=depth, limit=limit, ignore=ignore)

    async def walk_streamed(
        self, path: str, *, depth: int, ignore: Sequence[str] = ()
    ) -> AsyncIterator[list[TreeEntry]]:
        place = self._find(path)
        found = trees.walk_entries(place, path, depth=depth, ignore=ignore)
        while entries := list(islice(found, _ENTRIES)):
            self._require_ready()
            yield entries

    async def describe_files(self, path: str, names: Sequence[str]) -> list[TreeEntry]:
        return trees.describe_files(self._find(path), names)

    async def hash_files(self, path: str, names: Sequence[str]) -> dict[str, str]:
        return trees.hash_files(self._find(path), names)

    async def stat(self, path: str) -> Entry:
        return trees.entry_of(self._find(path), path)

    async def stat_link(self, path: str) -> Entry:
        self._require_ready()
        check_path(path)
        folder, name = posixpath.split(path.rstrip("/"))
        if name in ("", ".", ".."):
            return await self.stat(path)
        place = trees.resolve_path(self._disk, folder) / name
        if not os.path.lexists(place):
            raise GuestPathNotFound(f"There is no {path!r} inside the machine.")
        return trees.entry_of(place, path)

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        place = self._find(path)
        if not place.is_file():
            raise GuestPathInvalid(f"{path!r} is not a regular file.")
        with place.open("rb") as handle:
            handle.seek(offset)
            left = length
            while block := handle.read(_CHUNK if left is None else min(_CHUNK, left)):
                left = None if left is None else left - len(block)
                yield block

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        replace: bool = True,
        expected: str | None = None,
    ) -> int:
        self._require_ready()
        check_path(path)
        if not replace:
            trees.require_absent(self._named(path), path)
        folder, name = posixpath.split(path)
        if name in ("", ".", ".."):
            raise GuestPathInvalid(f"{path!r} names a directory.")
        target = trees.resolve_path(self._disk, path)
        if (trees.resolve_path(self._disk, folder) / name).is_symlink() and not target.exists():
            raise GuestPathInvalid(f"{path!r} is a symbolic link with a missing target.")
        if target.exists() and not target.is_file():
            raise GuestPathInvalid(f"{path!r} is not a regular file.")
        permissions = mode if mode is not None else (target.stat().st_mode if target.exists() else 0o644)
        trees.make_folders(target.parent, path)
        beside = target.parent / f".partial-{secrets.token_hex(8)}"
        size = 0
        try:
            with beside.open("xb") as handle:
                async for chunk in chunks:
                    size += handle.write(chunk)
            beside.chmod(stat.S_IMODE(permissions))
            self._require_ready()
            await trees.move_file(beside, target, path, replace=replace, expected=expected)
        except FileNotFoundError as error:
            raise GuestPathInvalid(f"The directory of {path!r} is gone.") from error
        except OSError as error:
            raise trees.path_error(error, path) from error
        finally:
            beside.unlink(missing_ok=True)
        return size

    async def append(self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None) -> int:
        self._require_ready()
        check_path(path)
        target = trees.resolve_path(self._disk, path)
        if self._named(path).is_symlink() and not target.exists():
            raise GuestPathInvalid(f"{path!r} is a symbolic link with a missing target.")
        if path.endswith("/") or (target.exists() and not target.is_file()):
            raise GuestPathInvalid(f"{path!r} is not a regular file.")
        if not target.parent.is_dir():
            raise GuestPathNotFound(f"There is no {path!r} inside the machine.")
        with target.open("ab") as handle:
            async for chunk in chunks:
                handle.write(chunk)
        if mode is not None:
            target.chmod(mode)
        return target.stat().st_size

    async def archive(self, path: str, said: bytearray | None = None) -> AsyncIterator[bytes]:
        place = self._find(path)
        if not place.is_dir():
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        given, begun = self._disk.with_name(ARCHIVE_FILE), self._require_ready().ready_at
        source = (
            archive_file(given) if given.exists() else archive_directory(place, bytearray() if said is None else said)
        )
        async with aclosing(source) as blocks:
            async for block in blocks:
                if self._require_ready().ready_at != begun:
                    raise GuestUnreachable("The machine has been started again.")
                if block:
                    yield block

    async def make_directory(self, path: str, *, mode: int | None = None) -> None:
        self._require_ready()
        trees.make_directory(self._named(path), path)
        if mode is not None:
            self._named(path).chmod(mode)

    async def remove(self, path: str) -> None:
        self._require_ready()
        trees.remove_tree(self._named(path), path)

    async def rename(self, source: str, destination: str) -> None:
        self._require_ready()
        trees.rename_path(self._named(source), self._named(destination), source, destination)

    async def disk_usage(self) -> DiskUsage:
        total = self._require_ready().spec.disk_mb << 20
        used = sum(file.st_size for file in trees.file_stats(self._disk))
        return DiskUsage(total_bytes=total, used_bytes=used, available_bytes=max(total - used, 0))

    def _require_ready(self) -> Domain:
        domain = self._store.domain(self._id)
        ready = domain is not None and domain.ready_at is not None and domain.ready_at <= time.time()
        if domain is None or domain.state is not MachineState.RUNNING or not ready:
            raise GuestUnreachable("The machine's control channel does not answer.")
        return domain

    def _find(self, path: str) -> Path:
        """Return the path on the host of an existing file. Raise GuestPathNotFound."""
        self._require_ready()
        check_path(path)
        place = trees.resolve_path(self._disk, path)
        if not place.exists():
            raise GuestPathNotFound(f"There is no {path!r} inside the machine.")
        return place

    def _named(self, path: str) -> Path:
        """Return the path on the host of a name, which may be a link. Raise GuestPathInvalid if it ends in none."""
        check_path(path)
        folder, name = posixpath.split(path.rstrip("/"))
        if name in ("", ".", ".."):
            raise GuestPathInvalid(f"{path!r} does not end in a name.")
        return trees.resolve_path(self._disk, folder) / name
