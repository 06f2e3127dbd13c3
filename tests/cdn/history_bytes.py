"""The bytes of a random history (history.py): written where uploads and the worker `media` write them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from django.db import connection

from cdn.services import rejection
from cdn.storage import list_parts, original_key, part_path, store_file, variant_key, work_folder
from tests.cdn.rows import SHA


def part_write(file_id: str, size: int) -> None:
    part_path(file_id).write_bytes(b"a" * size)


def stored_write(file_id: str, size: int, extra: int) -> None:
    """As an attempt leaves them before it publishes: the original, one variant, and the part, which is removed."""
    work = work_folder(file_id)
    for key, length in ((original_key(file_id, SHA), size), (variant_key(file_id, 0, SHA), extra)):
        made = Path(work, str(length) + key.rpartition("/")[2])
        made.write_bytes(b"a" * length)
        store_file().save(made, key)
    part_path(file_id).unlink(missing_ok=True)


def removals_run() -> None:
    """What the services do after a commit, which a test's own transaction never has."""
    waiting, connection.run_on_commit = connection.run_on_commit, []
    for _, call, _ in waiting:
        if getattr(call, "__qualname__", "") == rejection._remove.__qualname__:
            call()


def bytes_found(file_ids: Collection[str]) -> tuple[dict[str, int], dict[str, int]]:
    """What the store has of these files, and the sizes of their parts."""
    stored: dict[str, int] = {}
    for found in store_file().list_files():
        if found.file_id in file_ids:
            stored[found.file_id] = stored.get(found.file_id, 0) + found.size
    return stored, {part.file_id: part.size for part in list_parts() if part.file_id in file_ids}
