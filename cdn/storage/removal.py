"""Removal of all bytes of a file, wherever they are."""

from __future__ import annotations

from cdn.storage.parts import remove_part
from cdn.storage.places import remove_work
from cdn.storage.stores import store_file


def remove_local(file_id: str) -> None:
    """Remove part file and work folder, which are on this host whatever the store is. Idempotent. Raise OSError."""
    remove_part(file_id)
    remove_work(file_id)


def remove_bytes(file_id: str) -> None:
    """Remove part file, work folder and stored bytes. Idempotent. Raise StorageUnavailable, OSError."""
    remove_local(file_id)
    store_file().remove_all(file_id)
