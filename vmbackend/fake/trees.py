"""Trees of files of the fake driver's guests: directories of this host. For tests only.

Patterns of names to leave out are those of fnmatch, of a name or a whole path; the kit's know the syntax of gitignore.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

from vmbackend import trees as host_trees
from vmbackend.errors import GuestDiskFull, GuestFileChanged, GuestPathExists, GuestPathInvalid, GuestPathNotFound
from vmbackend.guest.own_names import is_own_name
from vmbackend.guest.session import ANY_CONTENT, Entry, TreeEntry

MAX_LINKS = 40
MAX_PATH = 4096  # bytes; the kernel's limit, its final NUL included
LOCK_SECONDS = 2.0  # the kit waits for ten


def walk_tree(root: Path, path: str, *, depth: int, limit: int, ignore: Sequence[str]) -> tuple[list[TreeEntry], bool]:
    """See GuestSession.walk."""
    found = list(islice(walk_entries(root, path, depth=depth, ignore=ignore), limit + 1))
    return found[:limit], len(found) > limit


def walk_entries(root: Path, path: str, *, depth: int, ignore: Sequence[str]) -> Iterator[TreeEntry]:
    """Return the entries below a directory, each when it is asked for. Raise GuestPathInvalid."""
    if not root.is_dir():
        raise GuestPathInvalid(f"{path!r} is not a directory.")
    return _below(root, depth, ignore)


def _below(root: Path, depth: int, ignore: Sequence[str]) -> Iterator[TreeEntry]:
    """Yield the entries without recursion: a tenant's tree may be deeper than Python recurses."""
    open_folders = [_sorted_names(root, "")]
    while open_folders:
        if (name := next(open_folders[-1], None)) is None:
            open_folders.pop()
            continue
        place = root / name
        if is_own_name(place.name) or any(
            fnmatch(place.name, pattern.rstrip("/")) or fnmatch(name, pattern) for pattern in ignore
        ):
            continue
        yield tree_entry(place, name)
        if depth > len(open_folders) and place.is_dir() and not place.is_symlink():
            open_folders.append(_sorted_names(root, f"{name}/"))


def _sorted_names(root: Path, before: str) -> Iterator[str]:
    """Return the names in a folder, relative to the root; those whose paths exceed the kernel's limit are left out."""
    places = sorted((root / before).iterdir()) if len(os.fsencode(root / before)) < MAX_PATH else []
    return iter([before + place.name for place in places if len(os.fsencode(place)) < MAX_PATH])


def file_stats(root: Path) -> Iterator[os.stat_result]:
    """Yield the attributes of all files below a folder, as far as the kernel reaches them by their paths."""
    folders = [root]
    while folders:
        # It is gone, or its path is too long.
        with suppress(OSError), os.scandir(folders.pop()) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                else:
                    yield entry.stat(follow_symlinks=False)


def names_after(folder: Path, after: str) -> list[str]:
    """Return the names in a directory after this one, in the order of their bytes."""
    names = (os.fsencode(found.name) for found in folder.iterdir() if not is_own_name(found.name))
    return [os.fsdecode(name) for name in sorted(names) if name > os.fsencode(after)]


def describe_files(root: Path, names: Sequence[str]) -> list[TreeEntry]:
    """See GuestSession.describe_files."""
    shown = (name for name in names if not is_own_name(Path(name).name))
    return [tree_entry(root / name, name) for name in shown if os.path.lexists(root / name)]


def tree_entry(place: Path, name: str) -> TreeEntry:
    """Return the entry of a file of this host."""
    found = place.lstat()
    return TreeEntry(
        path=name,
        type="directory" if place.is_dir() else "file",
        size=found.st_size,
        modified=int(found.st_mtime),
        is_regular=place.is_file(),
        target=str(place.readlink()) if place.is_symlink() else None,
    )


def hash_files(root: Path, names: Sequence[str]) -> dict[str, str]:
    """See GuestSession.hash_files."""
    return {name: _hash(root / name) for name in names}


def require_absent(place: Path, path: str) -> None:
    """Raise GuestPathExists."""
    if os.path.lexists(place):
        raise GuestPathExists(f"{path!r} exists already.")


async def move_file(source: Path, target: Path, path: str, *, replace: bool, expected: str | None) -> None:
    """Rename a file. Without `replace` raises GuestPathExists if there is a target; `expected`: GuestFileChanged.

    With `expected` the folder's lock is waited for; raise GuestPathInvalid if a program keeps it.
    """
    if expected is not None:
        async with _locked(target.parent):
            if expected not in (ANY_CONTENT, _hash(target)):
                raise GuestFileChanged("The file was changed by somebody else.")
            source.replace(target)
    elif replace:
        source.replace(target)
    else:
        try:
            os.link(source, target)
        except FileExistsError as error:
            raise GuestPathExists(f"{path!r} exists already.") from error


def _hash(place: Path) -> str:
    return hashlib.sha256(place.read_bytes()).hexdigest() if place.is_file() else ""


@asynccontextmanager
async def _locked(folder: Path) -> AsyncIterator[None]:
    """Lock the folder against all processes."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + LOCK_SECONDS
        while not _try_lock(opened):
            if time.monotonic() > until:
                raise GuestPathInvalid(f"A program of the machine has locked {str(folder)!r}.")
            await asyncio.sleep(0.01)
        yield
    finally:
        os.close(opened)


def _try_lock(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make_directory(place: Path, path: str) -> None:
    """See GuestSession.make_directory."""
    require_absent(place, path)
    make_folders(place, path)


def make_folders(place: Path, path: str) -> None:
    """Make a folder of this host with its parents, which may be more than Python recurses. Raise GuestPathInvalid."""
    try:
        missing = []
        while not place.exists():
            missing.append(place)
            place = place.parent
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise GuestPathInvalid(f"A part of {path!r} is not a directory.") from error
    except OSError as error:
        raise path_error(error, path) from error
    if not place.is_dir():
        raise GuestPathInvalid(f"A part of {path!r} is not a directory.")


def path_error(error: OSError, path: str) -> Exception:
    """Return what a guest's file server makes of an error of this host's kernel; others as they are."""
    if error.errno == errno.ENAMETOOLONG:
        return GuestPathInvalid(f"{path[:100]!r} is not accepted as a path by the machine.")
    if error.errno == errno.ENOSPC:
        return GuestDiskFull("The machine's disk is full.")
    return error


def remove_tree(place: Path, path: str) -> None:
    """See GuestSession.remove."""
    if not os.path.lexists(place):
        raise GuestPathNotFound(f"There is no {path!r} inside the machine.")
    if place.is_dir() and not place.is_symlink():
        host_trees.remove_tree(place)
    else:
        place.unlink()


def rename_path(place: Path, target: Path, source: str, destination: str) -> None:
    """See GuestSession.rename."""
    if not os.path.lexists(place):
        raise GuestPathNotFound(f"There is no {source!r} inside the machine.")
    if not target.parent.is_dir():
        raise GuestPathNotFound(f"There is no directory for {destination!r} inside the machine.")
    require_absent(target, destination)
    try:
        place.rename(target)
    except OSError as error:
        raise GuestPathInvalid(f"{source!r} cannot be moved to {destination!r}.") from error


def resolve_path(root: Path, path: str) -> Path:
    """Resolve `path` with `root` as the root, symbolic links included.

    Raise GuestPathNotFound for a loop of them, GuestPathInvalid for what is too long.
    """
    try:
        place = _resolved(root, path)
        place.exists()
    except OSError as error:
        raise path_error(error, path) from error
    return place


def _resolved(root: Path, path: str) -> Path:
    todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            done[-1:] = []
            continue
        place = root.joinpath(*done, part)
        if not place.is_symlink():
            done.append(part)
            continue
        links += 1
        if links > MAX_LINKS:
            raise GuestPathNotFound(f"{path!r} is a loop of symbolic links.")
        target = str(place.readlink())
        done = [] if target.startswith("/") else done
        todo.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
    return root.joinpath(*done)


def entry_of(place: Path, path: str) -> Entry:
    """Return the entry of a file of this host, as a listing shows it."""
    found = place.lstat()
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    return Entry(
        name=path.rstrip("/").rsplit("/", 1)[-1] or "/",
        path=path,
        type=kind,
        size=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        modified=found.st_mtime,
        target=str(place.readlink()) if kind == "symlink" else None,
    )
