"""Uploads: bytes arrive by a permit's address, one request at a time, which has the permit's lease."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models import Account
from cdn.errors import FileNotKept, OffsetConflict, UploadEnded, UploadInProgress, UploadLost, UploadUnknown
from cdn.models import File, Permit
from cdn.policy import effective_policy
from cdn.services.permits import kind_of_claim
from cdn.services.received import write_received
from cdn.services.rows import account_of, lock_file
from cdn.states import UPLOADABLE, FileStatus, PermitState
from common.batches import batched
from common.errors import PayloadTooLarge
from common.secrets_at_rest import keyed_hash

logger = logging.getLogger(__name__)

CHECKED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class UploadGrant:
    """Right of one request to send bytes, from `offset` up to `size`, until `deadline`. `owner` has the lease. `once`:
    the permit ends with the lease, as no other request goes on with it.
    """

    file_id: str
    permit_id: str
    size: int
    offset: int
    owner: str
    deadline: datetime
    once: bool = False


@dataclass(frozen=True, slots=True)
class UploadStatus:
    """Progress of an upload. `complete`: all bytes have arrived."""

    offset: int
    size: int
    complete: bool
    expires_at: datetime
    file_id: str


def upload_account(token: str) -> str:
    """Return the id of the account whose file is uploaded. Raise UploadUnknown (404)."""
    return _permit(token).file.account_id


def upload_begin(token: str, *, length: int | None, offset: int | None, owner: str, once: bool = False) -> UploadGrant:
    """Take the lease. `length`: the length of this request's body, if known. `offset`: where it goes on; None for a
    whole file. `once`: see `UploadGrant`.

    Raise UploadUnknown (404), UploadInProgress (409), OffsetConflict (409), PayloadTooLarge (413), CdnPolicyViolation
    (the policy has changed since); the upload does not change then.
    """
    permit = _permit(token)
    start = offset or 0
    if offset is not None and offset != permit.received_bytes:
        raise OffsetConflict(details={"offset": permit.received_bytes})
    if length is not None and length > permit.size - start:
        raise PayloadTooLarge(f"The permit is for {permit.size} bytes, of which {permit.size - start} are left.")
    _require_policy(permit)
    return _lease(permit, start, owner, once)


def _permit(token: str) -> Permit:
    """Return the permit of an address which takes bytes. Raise UploadUnknown, UploadEnded."""
    permit = _found(token)
    if permit.state not in UPLOADABLE or permit.expires_at <= timezone.now():
        raise UploadEnded
    return permit


def _found(token: str) -> Permit:
    """Return the permit of an address. Like other credentials, it is unknown if the account is inactive. Raise
    UploadUnknown.
    """
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    hashes = [keyed_hash(token, key) for key in keys]
    rows = Permit.objects.select_related("file__account", "file__namespace")
    permit = rows.filter(token_hash__in=hashes, file__account__is_active=True).first()
    if permit is None:
        raise UploadUnknown
    return permit


def _require_policy(permit: Permit) -> None:
    file = permit.file
    policy = effective_policy(file.account, file.namespace)
    policy.check_claim(kind=kind_of_claim(file.claimed_type), size=permit.size, variants=len(file.variants_wanted))


def _lease(permit: Permit, start: int, owner: str, once: bool) -> UploadGrant:
    now = timezone.now()
    until = permit.upload_until or now + timedelta(seconds=settings.ENV.cdn_upload_seconds)
    # A lease that ends later than any does was taken before the clock was set back.
    is_over = Q(lease_until__lte=now) | Q(lease_until__gt=now + 2 * timedelta(seconds=settings.ENV.cdn_lease_seconds))
    free = Q(state=PermitState.OPEN) | (Q(state=PermitState.RECEIVING) & is_over)
    # This is the offset as it was read: another request may have come and gone since.
    mine = Permit.objects.filter(free, pk=permit.pk, expires_at__gt=now, received_bytes=permit.received_bytes)
    taken = mine.update(
        state=PermitState.RECEIVING,
        lease_owner=owner,
        lease_until=_lease_end(now),
        received_bytes=start,
        upload_until=until,
        expires_at=min(until, _lease_end(now)) if once else until,
    )
    if not taken:
        raise UploadInProgress
    return UploadGrant(permit.file_id, permit.pk, permit.size, start, owner, until, once)


def _lease_end(now: datetime) -> datetime:
    return now + timedelta(seconds=settings.ENV.cdn_lease_seconds)


def leased(grant: UploadGrant) -> Q:
    """Return the condition for the permit while the grant's request has its lease."""
    return Q(pk=grant.permit_id, state=PermitState.RECEIVING, lease_owner=grant.owner)


def upload_progress(grant: UploadGrant, received: int) -> None:
    """Renew the lease; `received` bytes are stored so that they outlive this process. At least every 5 s.

    Raise UploadLost: the upload must end at once.
    """
    now = timezone.now()
    ends = {"expires_at": min(grant.deadline, _lease_end(now))} if grant.once else {}
    renewed = Permit.objects.filter(leased(grant), expires_at__gt=now, size__gte=received).update(
        lease_until=_lease_end(now), received_bytes=_shown_offset(grant, received), **ends
    )
    if not renewed:
        raise UploadLost


def lost_uploads(grants: Sequence[UploadGrant]) -> dict[UploadGrant, str]:
    """Return the grants whose request may send no more, each with a reason.

    Its file was deleted, its time is over, another request has the lease, or the account is not active. While the
    database does not answer, none is returned.
    """
    live = Permit.objects.filter(
        state=PermitState.RECEIVING, file__account__is_active=True, expires_at__gt=timezone.now()
    )
    try:
        owners = {
            permit_id: owner
            for some in batched(grants, CHECKED_AT_ONCE)
            for permit_id, owner in live.filter(pk__in=[grant.permit_id for grant in some]).values_list(
                "pk", "lease_owner"
            )
        }
    except DatabaseError as error:
        logger.warning("the permits of running uploads cannot be checked, and the uploads go on: %s", error)
        return {}
    return {grant: "the upload has ended" for grant in grants if owners.get(grant.permit_id) != grant.owner}


def upload_pause(grant: UploadGrant, received: int) -> None:
    """Give the lease back with the received bytes; another request goes on. Do nothing if the lease is lost."""
    Permit.objects.filter(leased(grant), size__gte=received).update(
        state=PermitState.OPEN, lease_owner="", lease_until=None, received_bytes=_shown_offset(grant, received)
    )


def _shown_offset(grant: UploadGrant, received: int) -> int:
    """Return the offset, at most that of the last byte.

    Clients take an offset at the end of the file for a complete file. They would send nothing more of a file whose
    request, or process, ended just before it was complete.
    """
    return min(received, max(grant.size - 1, 0))


@transaction.atomic
def upload_complete(grant: UploadGrant, received: int, sha256: str) -> File:
    """Complete a file whose bytes have all arrived: it is processed next. Fewer bytes than the permit's are a whole
    file, too.

    Raise UploadLost: nothing has changed then.
    """
    _, file = lock_upload(grant)
    ended = Permit.objects.filter(leased(grant), size__gte=received).update(
        state=PermitState.RECEIVED, lease_owner="", lease_until=None, received_bytes=received
    )
    if not ended:
        raise UploadLost
    write_received(file, received, sha256)
    return file


def lock_upload(grant: UploadGrant) -> tuple[Account, File]:
    """Return the locked account and file of a running upload. Raise UploadLost."""
    try:
        account, file = lock_file(grant.file_id, account_of(grant.file_id))
    except FileNotKept as exc:
        raise UploadLost from exc
    if file.status != FileStatus.UPLOADING:
        raise UploadLost
    return account, file


def upload_of_nothing(token: str) -> UploadStatus:
    """Return the status of an empty file's upload, which was complete when its permit was made.

    Requests that send it, without bytes, change nothing. Raise UploadUnknown, and UploadEnded for any other upload.
    """
    permit = _found(token)
    if permit.size or permit.expires_at <= timezone.now():
        raise UploadEnded
    return UploadStatus(0, 0, True, permit.expires_at, permit.file_id)


def upload_status(token: str) -> UploadStatus:
    """Return the status of an upload. Raise UploadUnknown, and UploadEnded also if it has ended without a file."""
    permit = _found(token)
    if permit.expires_at <= timezone.now():
        raise UploadEnded
    complete = permit.state not in UPLOADABLE
    if complete and permit.file.status == FileStatus.REJECTED:
        raise UploadEnded
    return UploadStatus(permit.received_bytes, permit.size, complete, permit.expires_at, permit.file_id)
