"""Names under which pages are served: links to their folders, each changed by one call of the kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pages.releases.errors import NameTaken
from pages.releases.store_paths import PageName
from pages.releases.system_calls import rename_without_replacing, sync_folder


def name_owner(root: Path, name: PageName) -> str | None:
    """Return the id of the page that the name leads to."""
    try:
        return (root / name.place).readlink().name
    except OSError:
        return None


def name_link(root: Path, name: PageName, page_id: str) -> None:
    """Make a name lead to a page. Idempotent. Raise NameTaken, OSError."""
    path = root / name.place
    with suppress(FileExistsError):
        path.parent.mkdir(0o755)
        sync_folder(path.parent.parent)
    try:
        path.symlink_to(name.target(page_id))
    except FileExistsError:
        _check_owner(root, name, page_id)
        return
    sync_folder(path.parent)


def name_unlink(root: Path, name: PageName, page_id: str) -> None:
    """Remove a name of a page. Idempotent; a name of another page stays. Raise OSError."""
    if name_owner(root, name) == page_id:
        path = root / name.place
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def name_move(root: Path, old: PageName, new: PageName, page_id: str) -> None:
    """Rename in one step, so that at each moment one of the names leads to the page. Idempotent.

    Raise NameTaken, OSError. Names of two domains are changed in two steps: both lead to the page meanwhile.
    """
    if old == new or name_owner(root, old) != page_id:
        name_link(root, new, page_id)
        return
    if old.domain != new.domain:
        # The folder of the new domain may not exist.
        name_link(root, new, page_id)
        name_unlink(root, old, page_id)
        return
    try:
        rename_without_replacing(root / old.place, root / new.place)
    except FileExistsError:
        _check_owner(root, new, page_id)
        name_unlink(root, old, page_id)
    sync_folder((root / new.place).parent)


def linked_names(root: Path) -> Iterator[tuple[PageName, str]]:
    """Yield every name and the id of its page."""
    for domain in _entries(root / "by-slug"):
        for slug in _entries(domain):
            yield from _linked(slug, PageName(domain.name, slug.name))


def _entries(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [folder / name for name in os.listdir(folder)]  # noqa: PTH208 - large folders
    return []


def _linked(path: Path, name: PageName) -> Iterator[tuple[PageName, str]]:
    with suppress(OSError):
        yield name, path.readlink().name


def _check_owner(root: Path, name: PageName, page_id: str) -> None:
    if name_owner(root, name) != page_id:
        raise NameTaken(f"{name.name} leads to another page.")
