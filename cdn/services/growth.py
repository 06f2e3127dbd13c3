"""Growth of a permit whose bytes arrive without an announced number: room is reserved in steps, before it is used."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from cdn.errors import CdnPolicyViolation, CdnQuotaExceeded, UploadLost
from cdn.models import File, Permit
from cdn.policy import effective_policy
from cdn.pools import Change, Room, claim_pools, reserved_for
from cdn.services.payments import hold_grow
from cdn.services.permits import HOLD_MARGIN, kind_of_claim
from cdn.services.rows import owner_of, write_file
from cdn.services.uploads import UploadGrant, leased, lock_upload
from common.errors import QuotaExceeded
from credits.enforcement import require_credits
from credits.models import Service
from credits.refusals import refusals_announced
from namespaces.models import Namespace
from namespaces.selectors import require_open

# A step is an eighth of what has come, within these bounds: few statements, and little that others have no room for.
SMALLEST_STEP, LARGEST_STEP = 1 << 20, 64 << 20
# Part of a step that is tried next if there is no room for it.
_LESS = 4


@refusals_announced()
def permit_grow(grant: UploadGrant, needed: int) -> UploadGrant:
    """Reserve what a running upload needs, and a step more if there is room. Return the grant with the new size.

    Raise UploadLost, and as for a new permit CdnPolicyViolation, CdnQuotaExceeded, QuotaExceeded, NamespaceSuspended;
    nothing has changed then.
    """
    step = min(max(needed // 8, SMALLEST_STEP), LARGEST_STEP)
    while step >= SMALLEST_STEP:
        with suppress(CdnPolicyViolation, CdnQuotaExceeded, QuotaExceeded):
            return _grow(grant, needed + step)
        step //= _LESS
    return _grow(grant, needed)


@transaction.atomic
def _grow(grant: UploadGrant, size: int) -> UploadGrant:
    account, file = lock_upload(grant)
    permit = Permit.objects.filter(leased(grant)).first()
    payer = None if permit is None else Namespace.objects.filter(pk=permit.payer_id).first()
    if permit is None or payer is None:
        raise UploadLost
    require_open(payer)
    require_credits(payer, Service.CDN)
    policy = effective_policy(account, file.namespace)
    policy.check_claim(kind=kind_of_claim(file.claimed_type), size=size, variants=len(file.variants_wanted))
    more = reserved_for(size, file.variants_wanted) - permit.reserved_bytes
    claim_pools(owner_of(file), Change(reserved_bytes=more), policy, Room(more))
    _write_size(file, permit, size, more)
    hold_grow(permit, payer, _hold_end(grant))
    return replace(grant, size=size)


def _write_size(file: File, permit: Permit, size: int, more: int) -> None:
    permit.size, permit.reserved_bytes = size, permit.reserved_bytes + more
    permit.save(update_fields=["size", "reserved_bytes"])
    write_file(file, size=size)


def _hold_end(grant: UploadGrant) -> datetime:
    return grant.deadline + timedelta(seconds=settings.ENV.cdn_processing_seconds) + HOLD_MARGIN
