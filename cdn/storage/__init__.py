"""Bytes of the CDN: part files of uploads, work folders of processing, and the store (a local disk, or S3).

Keys of the store are made of ids and hashes, never of names that users chose. No rows are read or written here.
"""

from __future__ import annotations

from cdn.storage.interface import Store, StoredBytes
from cdn.storage.keys import original_key, variant_key
from cdn.storage.parts import PartFound, part_remove, parts_list
from cdn.storage.places import part_path, require_room, work_folder, work_list, work_remove
from cdn.storage.removal import bytes_remove, local_remove
from cdn.storage.stores import file_store, store_is_remote

__all__ = [
    "PartFound",
    "Store",
    "StoredBytes",
    "bytes_remove",
    "file_store",
    "local_remove",
    "original_key",
    "part_path",
    "part_remove",
    "parts_list",
    "require_room",
    "store_is_remote",
    "variant_key",
    "work_folder",
    "work_list",
    "work_remove",
]
