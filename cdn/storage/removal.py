"""Removing all bytes of a file, wherever they are."""

from __future__ import annotations

from cdn.storage.parts import part_remove
from cdn.storage.places import work_remove
from cdn.storage.stores import file_store


def local_remove(file_id: str) -> None:
    """Part file and work folder, which are on this host whatever the store is. Idempotent. Raises OSError."""
    part_remove(file_id)
    work_remove(file_id)


def bytes_remove(file_id: str) -> None:
    """Part file, work folder and stored bytes. Idempotent. Raises StorageUnavailable, OSError."""
    local_remove(file_id)
    file_store().remove_all(file_id)
