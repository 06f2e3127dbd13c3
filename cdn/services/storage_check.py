"""Check whether bytes agree with rows: bytes without a row are removed after a grace time, missing bytes are reported.

The bytes are listed first and the rows are read after them. Bytes that are stored in between are younger than the grace
time, and files that were published after the beginning are left out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from cdn.delivery.links import list_links, remove_links
from cdn.models import File
from cdn.states import UNFINISHED, FileStatus
from cdn.storage import list_parts, list_work, original_key, remove_bytes, remove_local, store_file, variant_key
from cdn.storage.errors import StorageUnavailable
from common.batches import batched
from common.errors import DomainError

logger = logging.getLogger(__name__)

BATCH = 500
PUBLISHED = (FileStatus.ACTIVE, FileStatus.TRASHED)


@dataclass(slots=True)
class StoredNow:
    """Stored bytes. `parts`: files with a part file or a work folder.

    `young`: files of which something is younger than the grace time.
    """

    keys: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)
    young: set[str] = field(default_factory=set)


def stored_now() -> StoredNow:
    """Return everything in the store, and all part files and work folders. Raise StorageUnavailable."""
    found, grace = StoredNow(), settings.ENV.cdn_orphan_grace_seconds
    for stored in store_file().list_files():
        found.keys.add(stored.key)
        found.files.add(stored.file_id)
        if stored.age < grace:
            found.young.add(stored.file_id)
    local = [(part.file_id, part.age) for part in list_parts()] + [(work.file_id, work.age) for work in list_work()]
    for file_id, age in local:
        found.parts.add(file_id)
        if age < grace:
            found.young.add(file_id)
    return found


def orphans_remove(found: StoredNow | None = None) -> int:
    """Remove bytes and links that belong to no row, and remains of interrupted writes. Return how many.

    Raise StorageUnavailable: the next run goes on.
    """
    found = stored_now() if found is None else found
    removed = store_file().abort_unfinished(settings.ENV.cdn_orphan_grace_seconds)
    old = (found.files | found.parts) - found.young
    for file_id in sorted(old - _ids_in(old, (*UNFINISHED, *PUBLISHED))):
        removed += _removed(file_id)
    published = found.parts - found.young
    for file_id in sorted(_ids_in(published, PUBLISHED)):
        remove_local(file_id)
        removed += 1
    linked = set(list_links())
    for file_id in sorted(linked - _ids_in(linked, (FileStatus.ACTIVE,), account__is_active=True)):
        remove_links(file_id)
        removed += 1
    return removed


def _removed(file_id: str) -> int:
    try:
        remove_bytes(file_id)
    except StorageUnavailable:
        raise
    except (DomainError, OSError) as exc:
        logger.warning("the bytes of %s, which belong to no row, could not be removed yet: %s", file_id, exc)
        return 0
    logger.info("removed the bytes of %s, which belong to no row", file_id)
    return 1


def _ids_in(ids: set[str], statuses: tuple[str, ...], **conditions: object) -> set[str]:
    """Return the ids that have a row in one of these states, which fulfils the conditions."""
    rows: set[str] = set()
    known = File.objects.filter(status__in=statuses, **conditions).order_by()
    for some in batched(sorted(ids), BATCH):
        rows.update(known.filter(pk__in=some).values_list("pk", flat=True))
    return rows


def rows_compare(found: StoredNow, begun: datetime) -> tuple[list[str], list[str]]:
    """Return the keys of published rows that are not stored, and stored keys that a published file does not have.

    The latter were saved by attempts that died, under another hash. Both are sorted. If a file lacks a key, nothing
    else of it is named: its row may be wrong, as after a restored backup.
    """
    published = File.objects.filter(status__in=PUBLISHED, purge=False, published_at__lt=begun)
    ids = list(published.order_by("pk").values_list("pk", flat=True))
    missing, others = set[str](), set(found.keys)
    for some in batched(ids, BATCH):
        for file in File.objects.filter(pk__in=some, status__in=PUBLISHED, purge=False).prefetch_related("variants"):
            keys = _keys_of(file)
            missing |= keys - found.keys
            others -= keys
    complete = set(ids) - found.young - {_file_of(key) for key in missing}
    return sorted(missing), sorted(key for key in others if _file_of(key) in complete)


def _file_of(key: str) -> str:
    return key.split("/")[1]


def _keys_of(file: File) -> set[str]:
    variants = {variant_key(file.pk, variant.index, variant.sha256) for variant in file.variants.all()}
    return {original_key(file.pk, file.sha256), *variants}


def storage_check() -> tuple[list[str], int]:
    """Return sentences about missing bytes, and how many orphans were removed."""
    begun = timezone.now()
    found = stored_now()
    removed = orphans_remove(found)
    missing, unowned = rows_compare(found, begun)
    return [f"{key} is not stored" for key in missing], removed + sum(_key_removed(key) for key in unowned)


def _key_removed(key: str) -> int:
    try:
        store_file().remove(key)
    except (DomainError, OSError) as exc:
        logger.warning("%s, which belongs to no row, could not be removed yet: %s", key, exc)
        return 0
    logger.info("removed %s, which belongs to no row", key)
    return 1
