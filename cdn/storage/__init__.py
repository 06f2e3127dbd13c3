"""Bytes of the CDN: part files of uploads, work folders of processing, and the store (a local disk, or S3).

Keys of the store are made of ids and hashes, never of names that users chose. No rows are read or written here.
"""

from __future__ import annotations

from cdn.storage.interface import Store, StoredBytes
from cdn.storage.keys import original_key, variant_key
from cdn.storage.parts import PartFound, list_parts, remove_part
from cdn.storage.places import list_work, part_path, remove_work, require_room, work_folder
from cdn.storage.removal import remove_bytes, remove_local
from cdn.storage.stores import store_file, store_is_remote

__all__ = [
    "PartFound",
    "Store",
    "StoredBytes",
    "list_parts",
    "list_work",
    "original_key",
    "part_path",
    "remove_bytes",
    "remove_local",
    "remove_part",
    "remove_work",
    "require_room",
    "store_file",
    "store_is_remote",
    "variant_key",
    "work_folder",
]
