"""Processing from received bytes to a file that is published or rejected.

One process at a time works on a file: it has a claim, whose lease it renews. If it dies, the lease ends and another
process begins again. After the file's deadline the file is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Q, Window
from django.db.models.functions import Now, RowNumber
from django.utils import timezone

from accounts.models import Account
from cdn.errors import CdnPolicyViolation, CdnQuotaExceeded, FileNotKept, ProcessingFailed
from cdn.facts import FileFacts, VariantFacts
from cdn.models import File, Permit, Variant
from cdn.policy import EffectivePolicy, effective_policy
from cdn.pools import Change, Room, claim_pools
from cdn.services.payments import hold_end
from cdn.services.rejection import file_reject
from cdn.services.rows import account_of, lock_file, owner_of, write_file
from cdn.states import FileStatus, PermitState
from common.errors import Conflict, DomainError
from common.work.leases import ClaimLost, Lease, is_claim_of, new_claim, release_row
from common.work.shares import in_turn
from namespaces.models import Namespace

LEASE = Lease(timedelta(seconds=60))
# Time before a file that was given back is taken again.
PAUSE = timedelta(seconds=10)
_PROCESSING = Q(status=FileStatus.PROCESSING)
BATCH = 200


@dataclass(frozen=True, slots=True)
class ClaimedFile:
    """File that the caller processes. `received`: the number of its bytes, `sha256`: their hash."""

    file_id: str
    claim: str
    account_id: str
    namespace_id: str | None
    filename: str
    claimed_type: str
    received: int
    sha256: str
    variants_wanted: dict[str, dict[str, Any]]
    attempt: int
    deadline: datetime
    claim_epoch: int = 0

    @property
    def row(self) -> File:
        """Return the row whose claim guards its writes."""
        return File(pk=self.file_id, claim=self.claim, claim_epoch=self.claim_epoch)


def processing_claim(file_id: str) -> ClaimedFile | None:
    """Claim a file. Return None if another process holds the claim or the file is already done."""
    free, claim = Q(claim="") | LEASE.free(), new_claim()
    rows = File.objects.filter(_PROCESSING & free, pk=file_id, deadline_at__gt=timezone.now())
    if not LEASE.take_rows(rows, claim, attempt=F("attempt") + 1):
        return None
    # By the claim: it may be lost, or the file deleted, before the row is read.
    file = File.objects.filter(pk=file_id, claim=claim).first()
    return None if file is None else _claimed(file)


def _claimed(file: File) -> ClaimedFile:
    return ClaimedFile(
        file_id=file.pk,
        claim=file.claim,
        account_id=file.account_id,
        namespace_id=file.namespace_id,
        filename=file.filename,
        claimed_type=file.claimed_type,
        received=file.size,
        sha256=file.sha256,
        variants_wanted=file.variants_wanted,
        attempt=file.attempt,
        deadline=file.deadline_at or timezone.now(),
        claim_epoch=file.claim_epoch,
    )


def processing_policy(claim: ClaimedFile) -> EffectivePolicy:
    """Return the limits that are in force now."""
    namespace = Namespace(pk=claim.namespace_id) if claim.namespace_id else None
    return effective_policy(Account.objects.get(pk=claim.account_id), namespace)


def processing_heartbeat(claim: ClaimedFile) -> None:
    """Renew the lease. Raise ClaimLost: the process must end its work."""
    LEASE.write_row(claim.row, _PROCESSING & Q(deadline_at__gt=timezone.now()))


def processing_release(claim: ClaimedFile, *, is_counted: bool = False) -> None:
    """Give the claim back, so that the next attempt need not wait for the lease's end.

    `is_counted`: the attempt counts as a failure of the file, not of the host's disk or network.
    """
    attempt = F("attempt") if is_counted else F("attempt") - 1
    release_row(claim.row, _PROCESSING, lease_until=Now() + PAUSE, attempt=attempt)


def processing_publish(claim: ClaimedFile, facts: FileFacts, variants: Sequence[VariantFacts]) -> File:
    """Publish a file whose bytes and variants are in the store, in one transaction.

    Policy and quota of this moment are checked against the real facts. Reserved bytes become stored ones and count for
    the month; credits are settled. A file that is not allowed any more, or has no room, is rejected: the returned file
    says so. Raise ClaimLost.
    """
    try:
        return _publish(claim, facts, variants)
    except (CdnPolicyViolation, CdnQuotaExceeded, Conflict) as error:
        return processing_reject(claim, error)


@transaction.atomic
def _publish(claim: ClaimedFile, facts: FileFacts, variants: Sequence[VariantFacts]) -> File:
    account, file, permit = _locked(claim)
    policy = effective_policy(account, Namespace(pk=file.namespace_id) if file.namespace_id else None)
    policy.check_found(facts, variants=len(variants))
    footprint = facts.size + sum(each.size for each in variants)
    # Both use the same moment, so that the counters of a month agree with its files.
    now = timezone.now()
    _move_reserved(file, permit, policy, footprint, now)
    _write_facts(file, facts, footprint, now)
    Variant.objects.bulk_create([_variant_row(file, index, each) for index, each in enumerate(variants)])
    Permit.objects.filter(pk=file.pk).update(state=PermitState.CLOSED)
    hold_end(permit, file)
    return file


def _locked(claim: ClaimedFile) -> tuple[Account, File, Permit]:
    """Return the locked rows of a claim. Raise ClaimLost."""
    try:
        account, file = lock_file(claim.file_id, claim.account_id)
    except FileNotKept as exc:
        raise ClaimLost from exc
    permit = Permit.objects.filter(pk=file.pk, state=PermitState.RECEIVED).first()
    if permit is None or file.status != FileStatus.PROCESSING or not is_claim_of(file, claim):
        raise ClaimLost
    return account, file, permit


def _move_reserved(file: File, permit: Permit, policy: EffectivePolicy, footprint: int, now: datetime) -> None:
    """Move reserved bytes to stored ones. Raise CdnQuotaExceeded.

    Reserved bytes have room unless the quota was lowered; room for more is checked.
    """
    change = Change(
        reserved_bytes=-permit.reserved_bytes,
        reserved_files=-1,
        stored_bytes=footprint,
        stored_files=1,
        month_bytes=footprint,
        month_files=1,
    )
    room = Room(footprint, 1, with_reserved=footprint > permit.reserved_bytes, moment=now)
    claim_pools(owner_of(file), change, policy, room)


def _write_facts(file: File, facts: FileFacts, footprint: int, now: datetime) -> None:
    write_file(
        file,
        status=FileStatus.ACTIVE,
        kind=facts.kind,
        content_type=facts.content_type,
        extension=facts.extension,
        size=facts.size,
        sha256=facts.sha256,
        width=facts.width,
        height=facts.height,
        duration_seconds=facts.duration_seconds,
        footprint=footprint,
        claim="",
        lease_until=None,
        deadline_at=None,
        published_at=now,
    )


def _variant_row(file: File, index: int, facts: VariantFacts) -> Variant:
    return Variant(
        file=file,
        index=index,
        name=facts.name,
        width=facts.width,
        height=facts.height,
        size=facts.size,
        sha256=facts.sha256,
        content_type=facts.content_type,
        extension=facts.extension,
    )


@transaction.atomic
def processing_reject(claim: ClaimedFile, error: DomainError) -> File:
    """Reject a file and give its reservation back. Its bytes are removed after the commit. Raise ClaimLost."""
    _, file, _ = _locked(claim)
    file_reject(file, error)
    return file


def processing_due() -> list[str]:
    """Return the ids of some files that no process works on, in the order in which they are to be claimed.

    Accounts take turns, and accounts with fewer files in processing come first.
    """
    # The database would sort files that were never claimed last.
    oldest = (F("lease_until").asc(nulls_first=True), "pk")
    turn = Window(RowNumber(), partition_by="account_id", order_by=oldest)
    found = File.objects.filter(_PROCESSING & LEASE.free(), deadline_at__gt=timezone.now()).annotate(turn=turn)
    rows = found.order_by("turn", *oldest).values_list("pk", "account_id")[:BATCH]
    return in_turn(rows, _claims_by_account())


def _claims_by_account() -> dict[str, int]:
    """Return how many files of each account are being processed."""
    held = File.objects.filter(_PROCESSING & LEASE.held()).exclude(claim="")
    return dict(held.order_by().values_list("account_id").annotate(Count("pk")))


def processing_expire() -> int:
    """Reject files past their deadline, one batch. Return how many."""
    _deadlines_limit()
    late = File.objects.filter(status=FileStatus.PROCESSING, deadline_at__lte=timezone.now())
    return sum(_expire(file_id) for file_id in list(late.values_list("pk", flat=True)[:BATCH]))


def _deadlines_limit() -> None:
    """One that is later than any that is given now was written before the clock was set back (`common.work.clock`)."""
    latest = timezone.now() + timedelta(seconds=settings.ENV.cdn_processing_seconds)
    File.objects.filter(_PROCESSING, deadline_at__gt=latest).update(deadline_at=latest)


@transaction.atomic
def _expire(file_id: str) -> bool:
    try:
        _, file = lock_file(file_id, account_of(file_id))
    except FileNotKept:
        return False
    if file.status != FileStatus.PROCESSING or file.deadline_at is None or file.deadline_at > timezone.now():
        return False
    file_reject(file, ProcessingFailed())
    return True
