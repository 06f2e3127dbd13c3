"""Paths of the host under which an unprivileged process reaches files of an instance.

A machine's process runs as a user of its own and opens its files by path, so that user needs search permission on every
directory above them. The state folder has none for others, and may lie below a home directory that has none. A
directory that cannot be reached is bind mounted at `/run/mvm-machines/<instance>/<name>`, which exposes that directory
and nothing above or beside it. The names are fixed, so a path in a definition or in saved memory stays valid after a
restart of the host, once `open` has mounted the directories again.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.process import run_tool
from vmbackend.mounts import mount_points, mounted_below, unmount

log = logging.getLogger(__name__)

MOUNTS = Path("/run/mvm-machines")
_SEARCH = 0o001
_READ = 0o004


class ReachablePaths:
    """The paths of one instance that machines reach. `directories`: name -> directory; those in `read_only` are mounted
    read-only.
    """

    def __init__(self, instance: str, directories: Mapping[str, Path], *, read_only: frozenset[str]) -> None:
        self._instance = instance
        self._read_only = read_only
        self._directories = {name: Path(os.path.realpath(path)) for name, path in directories.items()}
        self._seen: dict[Path, Path] = {}

    def open(self) -> None:
        """Give others search permission on the directories and mount what still cannot be reached.

        Directories that do not exist yet are created. Idempotent. Raise BackendUnavailable, OSError.
        """
        self._seen = {
            path: reachable_directory(path, self._instance, name, read_only=name in self._read_only)
            for name, path in self._directories.items()
        }

    def path_for(self, path: Path) -> Path:
        """Return the path for the machine's process. A path outside of the directories is returned as it is."""
        real = self._source_of(Path(os.path.realpath(path)))
        for source, seen in self._seen.items():
            if real.is_relative_to(source):
                return seen / real.relative_to(source)
        return path

    def readable_file(self, path: Path) -> Path:
        """Return the path of a file that every machine may read; lets others read it and search the directories down to
        it.
        """
        real = self._source_of(Path(os.path.realpath(path)))
        if not real.exists():  # named by old saved memory; the start that needs it fails
            return self.path_for(path)
        _add_mode(real, _READ)
        for source in self._seen:
            for parent in real.parents:
                if parent != source and parent.is_relative_to(source):
                    _add_mode(parent, _SEARCH)
        return self.path_for(path)

    def _source_of(self, path: Path) -> Path:
        """Return the real path of one below a mount point, which need not be mounted now."""
        for name, source in self._directories.items():
            point = MOUNTS / self._instance / name
            if path.is_relative_to(point):
                return source / path.relative_to(point)
        return path if self._contains(path) else self._restored(path)

    def _contains(self, path: Path) -> bool:
        return any(path.is_relative_to(source) for source in self._directories.values())

    def _restored(self, path: Path) -> Path:
        """Return the path of a file whose instance was restored into another folder. Ids and hashes are unique, so the
        last parts of its path say which file it is.
        """
        for first in range(1, len(path.parts) - 1):
            for source in self._directories.values():
                found = source.joinpath(*path.parts[first:])
                if found.parent.is_dir():
                    return found
        return path


def reachable_directory(directory: Path, instance: str, name: str, *, read_only: bool = False) -> Path:
    """Return the directory itself if every user can search it and its parents, otherwise its mount point.

    Raise BackendUnavailable if it can be neither reached nor mounted.
    """
    real = Path(os.path.realpath(directory))
    real.mkdir(mode=0o700, parents=True, exist_ok=True)
    _add_mode(real, _SEARCH)
    if all(parent.stat().st_mode & _SEARCH for parent in real.parents):
        return directory
    return _mounted(real, MOUNTS / instance / name, read_only=read_only)


def unmount_all(instance: str) -> None:
    """Remove the instance's mounts and their mount points. Idempotent."""
    top = MOUNTS / instance
    unmount(mounted_below(top))
    for folder in (*top.glob("*"), top, MOUNTS):
        # Never recursively: a mount that is still there would be emptied.
        try:
            folder.rmdir()
        except OSError:
            continue


def _mounted(source: Path, point: Path, *, read_only: bool) -> Path:
    point.mkdir(mode=0o711, parents=True, exist_ok=True)
    for folder in (MOUNTS, point.parent):
        folder.chmod(0o711)
    mounted = point in mount_points()
    if mounted and not os.path.samestat(source.stat(), point.stat()):
        # The mount is of a directory that was removed since. Processes keep what they have open.
        unmount(mounted_below(point))
        mounted = False
    try:
        if not mounted:
            run_tool(["mount", "--bind", str(source), str(point)])
        # Each time: a death after the first command leaves a mount without the rest. Mounts that the host makes below
        # the source appear here, and unmounting here leaves them there.
        run_tool(["mount", "--make-slave", str(point)])
        run_tool(["mount", "-o", f"remount,bind,nosuid,nodev{',ro' if read_only else ''}", str(point)])
    except BackendUnavailable as error:
        log.error("not every user can search %s, and it cannot be mounted at %s", source, point)
        raise BackendUnavailable(
            "Machines cannot reach their files: the state folder and the cache must lie below directories that every "
            "user can search, or this process needs CAP_SYS_ADMIN to mount them elsewhere."
        ) from error
    return point


def _add_mode(path: Path, bits: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & bits != bits:
        path.chmod(mode | bits)
