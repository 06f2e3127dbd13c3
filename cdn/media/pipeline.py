"""Pipeline of one file, from its received bytes to its publication or refusal.

Every step may be repeated: a process that dies leaves a lease that ends, and the next attempt begins with an empty work
folder. Bytes in the store have names made of their hashes, so that two attempts write the same.
"""

from __future__ import annotations

import logging
import os
import stat
from hashlib import file_digest
from pathlib import Path

from django.db import DatabaseError

from cdn import storage
from cdn.errors import ProcessingFailed
from cdn.facts import FileFacts, VariantFacts
from cdn.inspection.formats import PICTURES, is_inspectable
from cdn.inspection.limits import VARIANT_BYTES
from cdn.inspection.messages import UNSUPPORTED, Findings, InspectionOrder
from cdn.media.charset import text_is_utf8
from cdn.media.claims import HeldFile, file_held
from cdn.media.findings import facts_of, require_verified
from cdn.media.inspections import run_inspection
from cdn.media.removal import stored_remove
from cdn.media.runner import InspectionKilled, InspectionUnavailable
from cdn.media.variant_plan import PlannedVariant, variants_planned
from cdn.policy import EffectivePolicy
from cdn.pools import reserved_for
from cdn.services import processing
from cdn.sniffing import HEAD_BYTES, type_sniff
from cdn.states import FileStatus
from cdn.storage.errors import StorageUnavailable
from cdn.storage.places import FILE_MODE
from cdn.types import TEXT
from common.connections import release_connection
from common.errors import DomainError
from common.work.leases import ClaimLost

logger = logging.getLogger(__name__)

# Most attempts whose process died: a file that ends its process must not do so for a day.
ATTEMPTS_MAX = 5
# Errors that say nothing about the file: another attempt follows, until the file's deadline.
_RETRIED = (StorageUnavailable, InspectionUnavailable, OSError, DatabaseError)


def file_process(file_id: str) -> bool:
    """Publish or reject a file that was received.

    Return False if another process holds the claim or the file is already done.
    """
    claimed = processing.processing_claim(file_id)
    if claimed is None:
        return False
    with file_held(claimed) as held:
        try:
            _attempt(held)
        except ClaimLost:
            logger.info("%s is not processed by this process any more", file_id)
            # If the file was cancelled meanwhile, its bytes may have reached the store after the removal.
            stored_remove([file_id])
        except DatabaseError as exc:
            logger.warning("%s could not be processed now and waits for another attempt: %s", file_id, exc)
    return True


def _attempt(held: HeldFile) -> None:
    """Process a claimed file once. Raise ClaimLost, DatabaseError."""
    try:
        if held.file.attempt > ATTEMPTS_MAX:
            raise ProcessingFailed
        _publish(held)
    except ClaimLost:
        raise
    except InspectionKilled as exc:
        logger.warning("%s waits for another attempt: %s", held.file.file_id, exc)
        processing.processing_release(held.file, is_counted=True)
    except _RETRIED as exc:
        logger.warning("%s waits for another attempt: %s", held.file.file_id, exc)
        processing.processing_release(held.file)
    except DomainError as exc:
        processing.processing_reject(held.file, exc)
    except Exception:
        logger.exception("%s could not be processed", held.file.file_id)
        processing.processing_release(held.file, is_counted=True)


def _publish(held: HeldFile) -> None:
    """Publish a claimed file. Raise CdnPolicyViolation, ProcessingFailed, ClaimLost, and errors that are tried
    again.
    """
    claimed = held.file
    work = storage.work_folder(claimed.file_id)
    part = storage.part_path(claimed.file_id)
    file = _part_open(part, claimed.received)
    try:
        found, planned = _looked_at(held, file, work)
        is_utf8 = found.content_type.startswith(TEXT) and text_is_utf8(file, held.require_held)
    finally:
        os.close(file)
    facts = facts_of(claimed, found, is_utf8=is_utf8)
    variants = _variants_made(found, planned, work)
    processing.processing_policy(claimed).check_found(facts, variants=len(variants))
    _store(held, part, facts, variants, work)
    published = processing.processing_publish(claimed, facts, variants)
    if published.status == FileStatus.ACTIVE:
        storage.remove_part(claimed.file_id)
    storage.remove_work(claimed.file_id)


def _part_open(part: Path, size: int) -> int:
    """Return a descriptor of the received bytes. Raise ProcessingFailed if they are missing or have another size.

    The part of an empty file is made here: no request had any bytes.
    """
    made = 0 if size else os.O_CREAT
    try:
        file = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | made, FILE_MODE)
    except FileNotFoundError as exc:
        raise ProcessingFailed("The bytes of the file were lost; upload it again.") from exc
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        os.close(file)
        raise ProcessingFailed("The bytes of the file were damaged; upload it again.")
    return file


def _looked_at(held: HeldFile, file: int, work: Path) -> tuple[Findings, list[PlannedVariant]]:
    """Return findings and planned variants.

    A file that the policy refuses by kind and size alone is not inspected.
    """
    claimed = held.file
    known = type_sniff(os.pread(file, HEAD_BYTES, 0))
    policy = processing.processing_policy(claimed)
    policy.check_claim(kind=known.kind, size=claimed.received, variants=len(claimed.variants_wanted))
    planned = variants_planned(claimed.variants_wanted, known.content_type)
    order = _order(known.content_type, policy, planned)
    found = Findings(known.content_type, reason=UNSUPPORTED)
    if is_inspectable(known.content_type):
        found = _inspected(held, file, order, work)
    require_verified(claimed, found, policy)
    return found, planned


def _order(content_type: str, policy: EffectivePolicy, planned: list[PlannedVariant]) -> InspectionOrder:
    return InspectionOrder(
        content_type,
        policy.values["maxWidth"],
        policy.values["maxHeight"],
        policy.values["maxDurationSeconds"] is not None,
        tuple(variant.order for variant in planned) if content_type in PICTURES else (),
    )


def _inspected(held: HeldFile, file: int, order: InspectionOrder, work: Path) -> Findings:
    """Return the findings. Raise StorageUnavailable if the disk is, or may have been, too full for the variants."""
    if order.variants:
        storage.require_room(work, reserved_for(held.file.received, held.file.variants_wanted) - held.file.received)
    outputs = [_output(work, index) for index, _ in enumerate(order.variants)]
    # The inspection may take minutes, after which the server may have ended the connection.
    release_connection()
    found = run_inspection(file, order, outputs, held.require_held)
    if found.reason and outputs and _free_bytes(work) < VARIANT_BYTES:
        raise StorageUnavailable
    return found


def _output(work: Path, index: int) -> Path:
    return work / f"{index}"


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _variants_made(found: Findings, planned: list[PlannedVariant], work: Path) -> list[VariantFacts]:
    """Return the variants; hashes and sizes are taken from the files, whatever the process said."""
    return [
        _variant_facts(variant, made.width, made.height, _output(work, index))
        for index, (variant, made) in enumerate(zip(planned, found.variants, strict=False))
    ]


def _variant_facts(variant: PlannedVariant, width: int, height: int, path: Path) -> VariantFacts:
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    return VariantFacts(variant.name, width, height, size, digest, variant.type.content_type, variant.type.extension)


def _store(held: HeldFile, part: Path, facts: FileFacts, variants: list[VariantFacts], work: Path) -> None:
    """Store the original and its variants. Raise StorageUnavailable, ClaimLost."""
    file_id, store = held.file.file_id, storage.store_file()
    release_connection()
    held.require_held()
    store.save(part, storage.original_key(file_id, facts.sha256))
    for index, variant in enumerate(variants):
        held.require_held()
        store.save(_output(work, index), storage.variant_key(file_id, index, variant.sha256))
