"""Flushing a release before it gets its name."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from pages.releases.disk_use import folders_of
from pages.releases.store_paths import PUBLIC
from pages.releases.system_calls import file_system_sync, sync_file, sync_folder

# For 10,000 new files one syncfs takes 0.1 s, fsync of each 3 s, or 1 s by threads. But a syncfs waits for all other
# writes to the file system at that time.
FSYNC_MOST = 256


def release_sync(incoming: Path, paths: Iterable[str], written: Collection[str]) -> None:
    """Flush a release whose files are `paths`, of which `written` are new and the others links. Raise OSError.

    A release with few new files, as most redeploys are, waits for its own files alone.
    """
    folders = folders_of(paths)
    if len(written) + len(folders) > FSYNC_MOST:
        file_system_sync(incoming)
        return
    public = incoming / PUBLIC
    for path in written:
        sync_file(public / path)
    for entry in os.scandir(incoming):
        if entry.is_file(follow_symlinks=False):
            sync_file(Path(entry.path))
    for folder in sorted(folders, reverse=True):
        sync_folder(public / folder)
    sync_folder(incoming)
