"""The only writer of staff's tokens for the API, and their check."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db.models.functions import Now

from common.errors import ValidationError
from common.secrets_at_rest import keyed_hash, keyed_hashes, new_secret
from staff.models import StaffToken

PREFIX = "stf_"
# What tokens may be for, and the permission that their user needs for it.
ABILITIES: Mapping[str, str] = {"hosts.read": "vmbackend.view_host", "hosts.act": "vmbackend.change_host"}
LONGEST_SECONDS = 365 * 86400


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The member of staff of a request: the actor of what it does."""

    user_id: int
    name: str
    can: frozenset[str]


@dataclass(frozen=True, slots=True)
class NewStaffToken:
    """`text` is shown now and never again."""

    text: str
    expires_at: datetime


def token_create(*, user: User, can: Collection[str], ttl_seconds: int) -> NewStaffToken:
    """Make a token of a user of the admin. Raise ValidationError."""
    unknown = sorted(set(can) - ABILITIES.keys())
    if unknown or not can:
        raise ValidationError(
            details={"can": [f"Name some of {', '.join(ABILITIES)}, not {', '.join(unknown) or '-'}."]}
        )
    if not 1 <= ttl_seconds <= LONGEST_SECONDS:
        raise ValidationError(details={"ttl": ["A token lives for a year at most."]})
    text = new_secret(PREFIX)
    made = StaffToken.objects.create(
        user=user, token_hash=keyed_hash(text), can=sorted(can), expires_at=Now() + timedelta(seconds=ttl_seconds)
    )
    made.refresh_from_db()
    return NewStaffToken(text, made.expires_at)


def find_holder(text: str) -> TokenHolder | None:
    """Return whose token it is; None if it is unknown or has expired, or if its user is no member of staff any more."""
    rows = StaffToken.objects.filter(token_hash__in=keyed_hashes(text), expires_at__gt=Now())
    token = rows.filter(user__is_active=True, user__is_staff=True).select_related("user").first()
    if token is None:
        return None
    user = token.user
    can = frozenset(name for name in token.can if name in ABILITIES and user.has_perm(ABILITIES[name]))
    return TokenHolder(user.pk, user.get_username(), can)
