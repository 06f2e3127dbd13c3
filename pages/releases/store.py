"""Files of all pages: releases that never change, one link that says which is live, and names that lead to pages.

Each change that a visitor can notice is one call of the kernel (a rename or a link), so no request sees two releases
mixed. A process may die at any line. It leaves files that are whole, or unfinished ones below `incoming` and `trash`;
`reconcile.files_reconcile` makes them as the rows say. Callers write rows before files.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pages.releases.compress import DEFAULT_LIMITS, CompressLimits, is_compressed
from pages.releases.copies import release_copies, remove_foreign_copies
from pages.releases.disk_use import content_bytes, names_bytes
from pages.releases.errors import StoreError
from pages.releases.manifest import MANIFEST, StoredFile, manifest_bytes, read_manifest
from pages.releases.page_names import name_link, name_move, name_unlink
from pages.releases.received import Received, Skipped
from pages.releases.release_sync import release_sync
from pages.releases.retained import add_retained, read_retained, remove_retained
from pages.releases.rules_files import take_rules
from pages.releases.steady_clock import SteadyClock
from pages.releases.store_paths import PUBLIC, PageName, StorePaths
from pages.releases.system_calls import sync_folder
from vmbackend.trees import remove_tree

DAY = 86400.0
CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """Release as it was made; `bytes` is the sum of its files without copies."""

    files: int
    bytes: int
    skipped: list[Skipped]
    skipped_count: int
    has_headers: bool
    has_redirects: bool


class PageStore:
    """Store that any number of processes of one host may use. The folder is one file system."""

    def __init__(self, root: Path, retained_seconds: float = DAY, compress: CompressLimits = DEFAULT_LIMITS) -> None:
        """Make the folders that are missing. Raise OSError."""
        self.root = root
        self.paths = StorePaths(root)
        self._retained_seconds = retained_seconds
        self._compress = compress
        self.clock = SteadyClock(root / CLOCK)
        # The folder belongs to the operator's user, which the edge runs as: machines have users of their own.
        root.mkdir(0o700, parents=True, exist_ok=True)
        for name in ("incoming", "by-id", "by-slug", "trash"):
            (root / name).mkdir(0o755, exist_ok=True)

    @contextmanager
    def incoming_open(self, operation_id: str) -> Iterator[int]:
        """Yield an empty folder for an export, as a descriptor.

        Files that `release_create` did not take are removed at the end.
        """
        folder = self.paths.incoming(operation_id)
        self.discard(folder)
        (folder / PUBLIC).mkdir(0o755, parents=True)
        fd = os.open(folder / PUBLIC, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)
            self.discard(folder)

    def known_contents(self, page_id: str) -> dict[str, str]:
        """Return paths of files of kept releases, by digest."""
        known: dict[str, str] = {}
        for number, files in self._manifests(page_id):
            public = self._public(page_id, number)
            known.update((file.digest, f"{public}/{path}") for path, file in files.items())
        return known

    def release_create(self, page_id: str, number: int, operation_id: str, received: Received) -> ReleaseFiles:
        """Make a release of the files in `incoming_open`; it is not live. Takes seconds to minutes.

        Raise StoreError if the release exists, and OSError; then there is no release, and incoming has the files.
        """
        if number < 1:
            raise ValueError("Releases are counted from 1.")
        incoming = self.paths.incoming(operation_id)
        rules = take_rules(incoming, received)
        remove_foreign_copies(incoming / PUBLIC, received)
        known = self._known_copies(page_id)
        files, copies = release_copies(incoming / PUBLIC, received, known, self._compress)
        (incoming / MANIFEST).write_bytes(manifest_bytes(files))
        release_sync(incoming, files, [*(received.written & files.keys()), *copies])
        self._move_release(incoming, page_id, number)
        return ReleaseFiles(
            len(files),
            sum(file.size for file in files.values()),
            received.skipped,
            received.skipped_count,
            has_headers=bool(rules.headers),
            has_redirects=bool(rules.redirects),
        )

    def release_publish(self, page_id: str, number: int) -> None:
        """Make a release live, which may be an earlier one. Files of the live one whose names carry a hash are
        retained.

        Idempotent. Raise StoreError if there is no such release, and OSError; then the live one stays live.
        """
        with self.page_locked(page_id):
            self._require_release(page_id, number)
            self.release_prepare(page_id, number)
            self.release_switch(page_id, number)

    def release_prepare(self, page_id: str, number: int) -> None:
        """Retain files of the live release: the slow part of a publication.

        The caller holds the lock. Raise OSError.
        """
        live = self.release_live(page_id)
        if live is not None and live != number and self._retained_seconds:
            self._retain_files(page_id, live, number)

    def release_switch(self, page_id: str, number: int) -> None:
        """Make a prepared release live: the quick part of a publication. The caller holds the lock.

        Raise StoreError, OSError; the live release stays then.
        """
        self._require_release(page_id, number)
        if self.release_live(page_id) != number:
            self.switch_current(page_id, number)

    def _require_release(self, page_id: str, number: int) -> None:
        if not self.paths.release(page_id, number).is_dir():
            raise StoreError(f"The page has no release {number}.")

    def trim_releases(self, page_id: str, kept: Collection[int]) -> list[int]:
        """Remove every release that is older than the newest of `kept` and not among them, never the live one.

        A newer release is of a deploy that has come since. Return which were removed. Raise OSError.
        """
        with self.page_locked(page_id):
            stays, newest = {*kept, self.release_live(page_id)}, max(kept, default=0)
            removed = [number for number in self.release_numbers(page_id) if number < newest and number not in stays]
            trash = [self._move_to_trash(self.paths.release(page_id, number)) for number in removed]
        # This is done without the lock, for which requests wait: it takes seconds.
        for folder in trash:
            if folder is not None:
                remove_tree(folder)
        return removed

    def release_numbers(self, page_id: str) -> list[int]:
        """Return the releases on the disk, oldest first."""
        with suppress(FileNotFoundError):
            found = os.listdir(self.paths.releases(page_id))  # noqa: PTH208 - names alone
            return sorted(int(name) for name in found if name.isdecimal())
        return []

    def release_live(self, page_id: str) -> int | None:
        """Return the number of the live release."""
        try:
            return int(self.paths.current(page_id).readlink().name)
        except (OSError, ValueError):
            return None

    def page_bytes(self, page_id: str, now: float = 0.0) -> int:
        """Return the bytes of the disk that the page takes: each content once, with its copies.

        Counted are all releases, and files that are retained beyond `now` (Unix time in seconds).
        """
        contents: dict[str, int] = {}
        names = 0
        retained = read_retained(self.paths.page(page_id)).items()
        kept = {path: found.file for path, found in retained if found.until > now}
        for files in (*(files for _, files in self._manifests(page_id)), *([kept] if kept else [])):
            names += names_bytes(files)
            for file in files.values():
                contents[file.digest] = max(contents.get(file.digest, 0), content_bytes(file))
        return names + sum(contents.values())

    def expire_retained(self, page_id: str, now: float) -> bool:
        """Remove retained files whose time is over (Unix time in seconds); return whether there were any."""
        with self.page_locked(page_id):
            return self.trim_retained(page_id, now)

    def retained_is_over(self, page_id: str, now: float) -> bool:
        """Return whether there are retained files whose time is over."""
        return any(found.until <= now for found in read_retained(self.paths.page(page_id)).values())

    def trim_retained(self, page_id: str, now: float) -> bool:
        """Do what `expire_retained` does; the caller holds the lock."""
        return remove_retained(self.paths.page(page_id), now, self._retained_seconds)

    def name_add(self, page_id: str, name: PageName) -> None:
        """Serve the page under a name. Idempotent.

        Raise NameTaken, OSError, and StoreError if the page has no files.
        """
        with self.page_locked(page_id):
            name_link(self.root, name, page_id)

    def name_remove(self, page_id: str, name: PageName) -> None:
        """Stop serving a page under a name. Idempotent; a name that leads to another page stays. Raise OSError."""
        name_unlink(self.root, name, page_id)

    def name_rename(self, page_id: str, old: PageName, new: PageName) -> None:
        """Rename in one step. Idempotent; makes the new name if the old one does not exist.

        Raise as `name_add` does.
        """
        with self.page_locked(page_id):
            name_move(self.root, old, new, page_id)

    def page_delete(self, page_id: str, names: Iterable[PageName] = ()) -> None:
        """Remove the names, then all files. Idempotent. Raise OSError."""
        for name in names:
            self.name_remove(page_id, name)
        self.discard(self.paths.page(page_id))

    @contextmanager
    def page_locked(self, page_id: str) -> Iterator[None]:
        """Lock a page: one process at a time changes what is live, retained, named.

        Raise StoreError if the page has no files.
        """
        folder = self.paths.page(page_id)
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StoreError("The page has no files.") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # The page was deleted while this process waited: links into it would lead nowhere.
            if not folder.exists():
                raise StoreError("The page has no files.")
            yield
        finally:
            os.close(fd)

    def switch_current(self, page_id: str, number: int | None) -> None:
        """Make the link to the live release; without a number nothing is live. The caller holds the lock. Raise
        OSError.
        """
        current = self.paths.current(page_id)
        if number is None:
            current.unlink(missing_ok=True)
        else:
            beside = current.with_name("current.new")
            beside.unlink(missing_ok=True)
            beside.symlink_to(f"releases/{number}")
            beside.replace(current)
        sync_folder(current.parent)

    def discard(self, path: Path) -> None:
        """Remove a folder or file: out of its place at once, then for good. Raise OSError."""
        target = self._move_to_trash(path)
        if target is not None:
            remove_tree(target)

    def _move_to_trash(self, path: Path) -> Path | None:
        """Move to the trash; return None if there is nothing. Reconcile removes what is left there."""
        target = self.paths.trash / f"{path.name}.{secrets.token_hex(8)}"
        try:
            path.rename(target)
        except FileNotFoundError:
            return None
        sync_folder(path.parent)
        return target

    def _move_release(self, incoming: Path, page_id: str, number: int) -> None:
        release = self.paths.release(page_id, number)
        release.parent.mkdir(0o755, parents=True, exist_ok=True)
        if release.exists():
            raise StoreError(f"The page has a release {number}.")
        incoming.rename(release)
        for folder in (release.parent, release.parent.parent, release.parent.parent.parent):
            sync_folder(folder)

    def _retain_files(self, page_id: str, live: int, number: int) -> None:
        """Retain files of the live release.

        A release that cannot be read any more retains nothing, and the next goes live all the same.
        """
        now, page, release = self.clock.now(), self.paths.page(page_id), self.paths.release(page_id, live)
        with suppress(FileNotFoundError, ValueError):
            before, after = read_manifest(release), read_manifest(self.paths.release(page_id, number))
            add_retained(page, release, before, after, now + self._retained_seconds)

    def _manifests(self, page_id: str) -> Iterator[tuple[int, Mapping[str, StoredFile]]]:
        """Yield the manifests of all releases, the oldest first, without those that are being removed."""
        for number in self.release_numbers(page_id):
            with suppress(FileNotFoundError, ValueError):
                yield number, read_manifest(self.paths.release(page_id, number))

    def _known_copies(self, page_id: str) -> dict[str, tuple[str, Mapping[str, int]]]:
        known: dict[str, tuple[str, Mapping[str, int]]] = {}
        for number, files in self._manifests(page_id):
            public = self._public(page_id, number)
            known.update(
                (file.digest, (f"{public}/{path}", file.copies))
                for path, file in files.items()
                if file.copies is not None and is_compressed(path, file.size)
            )
        return known

    def _public(self, page_id: str, number: int) -> str:
        """Return a folder's path as text: for ten thousand paths the objects would take longer than the links."""
        return str(self.paths.release(page_id, number) / PUBLIC)
