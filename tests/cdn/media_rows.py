"""What a file's processing left: in the store, beside it, in the counters."""

from __future__ import annotations

from cdn import storage
from cdn.models import File, Pool
from cdn.storage.places import cdn_folder

SMALL = {"small": {"width": 40, "height": 40, "fit": "contain", "format": "webp"}}


def stored(file: File) -> set[str]:
    return {found.key for found in storage.store_file().list_files() if found.file_id == file.pk}


def beside_the_store(file: File) -> bool:
    """Whether a part file or a work folder is left."""
    return storage.part_path(file.pk).exists() or (cdn_folder("work") / file.pk).exists()


def counters(file: File) -> tuple[int, int]:
    pool = Pool.objects.get(owner=file.account_id)
    return pool.stored_bytes, pool.reserved_bytes
