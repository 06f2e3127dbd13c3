"""Permits: the right to upload one file, with its bytes and credits reserved."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_lock
from cdn.models import File, Permit
from cdn.permit_function import NO_ACCOUNT_ROOM, NO_HOLD, NO_NAMESPACE
from cdn.policy import EffectivePolicy, effective_policy
from cdn.pools import Owner, Room, make_pools, reserved_for, room_refused
from cdn.services.payments import Held, hold_of
from cdn.services.permit_statement import permit_take
from cdn.services.received import write_empty
from cdn.types import UNKNOWN_TYPE, claimed_kind
from common.errors import NotFound
from common.secrets_at_rest import keyed_hash, new_secret
from credits.enforcement import require_credits
from credits.holds import balance_for_hold, hold_refused
from credits.models import Service
from credits.refusals import refusals_announced
from namespaces.models import Namespace
from namespaces.selectors import require_open

TOKEN_PREFIX = "upl_"  # noqa: S105 - what tokens begin with
# Holds outlive their uploads, so that none expires before its settlement.
HOLD_MARGIN = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class NewFile:
    """Validated request for a file. `namespace` None: the file is unassigned."""

    namespace: Namespace | None
    filename: str
    size: int
    content_type: str = ""
    tags: list[str] = field(default_factory=list)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IssuedPermit:
    """Permit and its token, which is available only here."""

    file: File
    permit: Permit
    token: str


@refusals_announced()
def permit_create(*, account: Account, new: NewFile, actor: str, once: bool = False) -> IssuedPermit:
    """Reserve bytes, files and credits for an upload, in one transaction. A file of no bytes is complete at once.

    `once`: the request that asks for it sends the bytes, and no other one does: the permit lasts as long as a lease.
    Raise CdnPolicyViolation, CdnQuotaExceeded, QuotaExceeded (credits, or a namespace that they suspend),
    NamespaceSuspended; nothing is reserved then.
    """
    payer = require_payer(account, new.namespace)
    policy = effective_policy(account, new.namespace)
    policy.check_claim(kind=kind_of_claim(new.content_type), size=new.size, variants=len(new.variants))
    file = _new_file(account, new, actor)
    token = new_secret(TOKEN_PREFIX)
    permit = _new_permit(file, new, token, settings.ENV.cdn_lease_seconds if once else settings.ENV.cdn_permit_seconds)
    until = permit.expires_at + timedelta(seconds=settings.ENV.cdn_upload_seconds + settings.ENV.cdn_processing_seconds)
    held = hold_of(permit, payer, until + HOLD_MARGIN)
    if new.size:
        _permit_take(file, permit, policy, held)
    else:
        with transaction.atomic():
            _permit_take(file, permit, policy, held)
            write_empty(file, permit)
    return IssuedPermit(file, permit, token)


def require_payer(account: Account, namespace: Namespace | None) -> Namespace:
    """Return the namespace that pays for uploads: for unassigned files the account's default one.

    Raise NamespaceSuspended, QuotaExceeded.
    """
    payer = namespace or Namespace.objects.get(account=account, is_default=True)
    require_open(payer)
    require_credits(payer, Service.CDN)
    return payer


def _permit_take(file: File, permit: Permit, policy: EffectivePolicy, held: Held) -> None:
    if permit_take(file, permit, policy, held):
        _permit_take_again(file, permit, policy, held)


@transaction.atomic
def _permit_take_again(file: File, permit: Permit, policy: EffectivePolicy, held: Held) -> None:
    """Take the permit again, with the rows that may have been missing (pools, the balance, its quota).

    Raise an error that says where there is no room. Account and balance stay locked, so that it is true.
    """
    account_lock(file.account)
    owner = Owner(file.account_id, file.namespace_id)
    make_pools(owner)
    balance = balance_for_hold(held.payer, Service.CDN)
    missing = permit_take(file, permit, policy, held)
    if missing == NO_NAMESPACE and file.namespace is not None:
        raise NotFound(f"There is no namespace {file.namespace.slug!r}.")
    if missing == NO_HOLD:
        raise hold_refused(balance, held.payer, held.amount)
    if missing:
        room = Room(permit.reserved_bytes, 1, uploads=True)
        raise room_refused(owner, policy, room, of_account=missing == NO_ACCOUNT_ROOM)


def kind_of_claim(content_type: str) -> str | None:
    """Return the claimed kind; None if the client says that it does not know."""
    return None if content_type in ("", UNKNOWN_TYPE) else claimed_kind(content_type)


def _new_file(account: Account, new: NewFile, actor: str) -> File:
    return File(
        account=account,
        namespace=new.namespace,
        filename=new.filename,
        size=new.size,
        claimed_type=new.content_type,
        kind=claimed_kind(new.content_type),
        tags=new.tags,
        metadata=new.metadata,
        variants_wanted=new.variants,
        actor=actor[:160],
    )


def _new_permit(file: File, new: NewFile, token: str, seconds: float) -> Permit:
    return Permit(
        file=file,
        token_hash=keyed_hash(token),
        size=new.size,
        reserved_bytes=reserved_for(new.size, new.variants),
        expires_at=timezone.now() + timedelta(seconds=seconds),
    )
