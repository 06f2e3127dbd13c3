"""Files of earlier releases that open tabs may still ask for: served for some time after a switch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pages.releases.content_names import name_has_content_hash
from pages.releases.manifest import ENCODINGS, StoredFile, as_json, from_json
from pages.releases.store_paths import PUBLIC
from pages.releases.system_calls import file_replace

INDEX = "retained.json"


@dataclass(frozen=True, slots=True)
class RetainedFile:
    """File that is served until a Unix time in seconds."""

    until: float
    file: StoredFile


def read_retained(page: Path) -> dict[str, RetainedFile]:
    """Return the retained files of a page, by path. Raise OSError, ValueError."""
    try:
        found = json.loads((page / INDEX).read_bytes())
    except FileNotFoundError:
        return {}
    return {path: RetainedFile(until, from_json(values)) for path, (until, values) in found.items()}


def add_retained(
    page: Path, old: Path, before: Mapping[str, StoredFile], after: Mapping[str, StoredFile], until: float
) -> None:
    """Retain the files of a release that the next one does not have, if their names carry hashes of their contents.

    The index is written first: a process that dies leaves no file that the index does not name. Raise OSError.
    """
    wanted = {path: file for path, file in before.items() if path not in after and name_has_content_hash(path)}
    if not wanted:
        return
    _write_index(page, read_retained(page) | {path: RetainedFile(until, file) for path, file in wanted.items()})
    for path, file in wanted.items():
        for ending in ("", *(f".{encoding}" for encoding in file.copies or ())):
            # The path is a folder in one release and a file in another: such a tab goes without the file.
            with suppress(NotADirectoryError, FileExistsError, IsADirectoryError):
                _link_file(old / PUBLIC / f"{path}{ending}", page / "retained" / f"{path}{ending}")


def remove_retained(page: Path, now: float, longest: float) -> bool:
    """Remove files whose time is over, the files before their entries; return whether there were any. Raise OSError.

    `longest`: how long a file is retained. A longer time was written by a clock that was ahead.
    """
    index = read_retained(page)
    limited = {
        path: RetainedFile(min(retained.until, now + longest), retained.file)
        for path, retained in index.items()
        if retained.until > now
    }
    over = index.keys() - limited.keys()
    for path in over:
        for ending in ("", *(f".{encoding}" for encoding in ENCODINGS)):
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                (page / "retained" / f"{path}{ending}").unlink()
        _remove_empty_folders(page / "retained", path)
    if limited != index:
        _write_index(page, limited)
    return bool(over)


def _write_index(page: Path, index: Mapping[str, RetainedFile]) -> None:
    data = {path: [retained.until, as_json(retained.file)] for path, retained in index.items()}
    file_replace(page / INDEX, json.dumps(data, separators=(",", ":")).encode())


def _link_file(source: Path, target: Path) -> None:
    target.parent.mkdir(0o755, parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        if target.is_dir() or target.samefile(source):
            return
        # Another content under the same name: the newest counts.
        target.unlink()
        os.link(source, target, follow_symlinks=False)


def _remove_empty_folders(base: Path, path: str) -> None:
    folder = (base / path).parent
    with suppress(OSError):
        while folder != base:
            folder.rmdir()
            folder = folder.parent
