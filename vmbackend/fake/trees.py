"""Trees of files of the fake driver's guests: directories of this host. For tests only.

Patterns of names to leave out are those of fnmatch, of a name or a whole path; the kit's know the syntax of gitignore.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

from vmbackend.errors import GuestFileChanged, GuestPathExists, GuestPathInvalid, GuestPathNotFound
from vmbackend.guest.own_names import is_own_name
from vmbackend.guest.session import ANY_CONTENT, Entry, TreeEntry

MAX_LINKS = 40
LOCK_SECONDS = 2.0  # the kit waits for ten


def walk_tree(root: Path, path: str, *, depth: int, limit: int, ignore: Sequence[str]) -> tuple[list[TreeEntry], bool]:
    """See GuestSession.walk."""
    found = list(islice(walk_entries(root, path, depth=depth, ignore=ignore), limit + 1))
    return found[:limit], len(found) > limit


def walk_entries(root: Path, path: str, *, depth: int, ignore: Sequence[str]) -> Iterator[TreeEntry]:
    """Return the entries below a directory, each when it is asked for. Raise GuestPathInvalid."""
    if not root.is_dir():
        raise GuestPathInvalid(f"{path!r} is not a directory.")
    return _below(root, "", depth, ignore)


def _below(root: Path, before: str, depth: int, ignore: Sequence[str]) -> Iterator[TreeEntry]:
    for place in sorted((root / before).iterdir()):
        name = before + place.name
        if is_own_name(place.name) or any(
            fnmatch(place.name, pattern.rstrip("/")) or fnmatch(name, pattern) for pattern in ignore
        ):
            continue
        yield tree_entry(place, name)
        if depth > 1 and place.is_dir() and not place.is_symlink():
            yield from _below(root, f"{name}/", depth - 1, ignore)


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
    try:
        place.mkdir(parents=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise GuestPathInvalid(f"A part of {path!r} is not a directory.") from error


def remove_tree(place: Path, path: str) -> None:
    """See GuestSession.remove."""
    if not os.path.lexists(place):
        raise GuestPathNotFound(f"There is no {path!r} inside the machine.")
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
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
    """Resolve `path` with `root` as the root, symbolic links included. Raise GuestPathNotFound for a loop of them."""
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
