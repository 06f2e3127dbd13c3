"""The only writers of authenticators and recovery codes. Each leaves an audit entry."""

from __future__ import annotations

import base64
import math
import secrets
import time
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone
from django_otp.oath import TOTP

from common.errors import Conflict, DomainError, Forbidden, NotFound, RateLimited
from common.ids import random_suffix
from common.secrets_at_rest import keyed_hash, keyed_hashes
from staff.audit import StaffMember, Target, record_entry
from staff.models import Authenticator, Outcome, RecoveryCode

SECRET_BYTES = 20
STEP_SECONDS = 30
DIGITS = 6
# Steps before and after the present one, for clocks that differ.
TOLERANCE = 1
RECOVERY_CODES = 10
CODE_LENGTH = 16
# The wait after wrong codes doubles from one second to 2^9: of a million codes an attacker who has the password tries
# 170 a day.
MOST_FAILURES = 10
NOT_BEGUN = "The set-up was begun again since; use the new key."


class WrongCode(DomainError):
    """The attempt has been counted."""

    code = "wrong_code"
    status = 403
    message = "The code is wrong, or has been used. Wait for the next code of your authenticator app."


def factor_of(user_id: int) -> Authenticator | None:
    """Return the user's confirmed authenticator. One query."""
    found: Authenticator | None = Authenticator.objects.filter(user_id=user_id, confirmed=True).first()
    return found


@transaction.atomic
def factor_begin(user_id: int, begun: int | None = None) -> Authenticator:
    """Return the authenticator that is to be confirmed: that with the key `begun`, else a new one in place of any
    other, as who has begun another session may know its secret. Raise Conflict if one is confirmed.
    """
    found: Authenticator | None = Authenticator.objects.select_for_update().filter(user_id=user_id).first()
    if found is not None and found.confirmed:
        raise Conflict("There is a second factor already; remove it first.")
    if found is not None and found.pk == begun:
        return found
    if found is not None:
        found.delete()
    secret = base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode()
    try:
        with transaction.atomic():
            made: Authenticator = Authenticator.objects.create(
                user_id=user_id, secret=secret, confirmed=False, name="authenticator"
            )
    except IntegrityError as exc:
        raise Conflict("The second factor is being set up by another session; try again.") from exc
    return made


def factor_confirm(member: StaffMember, code: str, begun: int) -> list[str]:
    """Make the authenticator with the key `begun` the user's second factor, after a right code of it.

    Return the recovery codes, which are available only here. Raise WrongCode, RateLimited, NotFound (another has been
    begun since, or one is confirmed).
    """
    _require_right(member, code, confirmed=False, key=begun)
    with transaction.atomic():
        rows = Authenticator.objects.filter(user_id=member.user_id, confirmed=False, pk=begun)
        if not rows.update(confirmed=True):
            raise NotFound(NOT_BEGUN)
        record_entry(member, "second_factor.set_up", _target(member))
        return _new_codes(member)


def code_check(member: StaffMember, code: str) -> Authenticator:
    """Accept a code of the authenticator, or a recovery code, once. Return the authenticator.

    Raise WrongCode, RateLimited (too soon after wrong ones: it was not looked at), NotFound (no second factor).
    """
    return _require_right(member, code, confirmed=True)


def recovery_codes_renew(member: StaffMember, code: str) -> list[str]:
    """Return new recovery codes in place of the former ones, after a right code. Raise what `code_check` raises."""
    code_check(member, code)
    with transaction.atomic():
        record_entry(member, "second_factor.codes_renewed", _target(member))
        return _new_codes(member)


def factor_remove(member: StaffMember, code: str) -> int:
    """Remove the user's own second factor, after a right code. Return 1. Raise what `code_check` raises."""
    code_check(member, code)
    with transaction.atomic():
        removed = _delete(member.user_id or 0)
        record_entry(member, "second_factor.removed", _target(member))
    return removed


def factor_reset(user_id: int) -> None:
    """Remove the second factor of a user who has lost it. The caller writes the audit entry.

    Raise NotFound if there is none. Sessions that it had verified are unverified from now on.
    """
    if not _delete(user_id):
        raise NotFound("The user has no second factor.")


def require_reset_allowed(is_superuser: bool, by_superuser: bool, *, is_own: bool) -> None:
    """Raise Forbidden: of a superuser only another one resets it, or who has the host; never one's own, as that
    is removed with a code, which a session that was taken over has not."""
    if is_own:
        raise Forbidden("Your own second factor is removed on its page, with a code of it.")
    if is_superuser and not by_superuser:
        raise Forbidden("The second factor of a superuser is reset by a superuser, or on the host.")


@transaction.atomic
def _delete(user_id: int) -> int:
    RecoveryCode.objects.filter(user_id=user_id).delete()
    removed: int = Authenticator.objects.filter(user_id=user_id).delete()[0]
    return removed


def _require_right(member: StaffMember, code: str, *, confirmed: bool, key: int | None = None) -> Authenticator:
    """Require a right code under the row's lock, so that one of many guesses at once is looked at, and a code is
    accepted once.

    A wrong code is counted, and recorded, before WrongCode is raised.
    """
    with transaction.atomic():
        rows = Authenticator.objects.select_for_update().filter(user_id=member.user_id, confirmed=confirmed)
        device: Authenticator | None = (rows if key is None else rows.filter(pk=key)).first()
        if device is None:
            raise NotFound("There is no second factor." if key is None else NOT_BEGUN)
        _require_allowed(device)
        accepted = _accept(device, member, code.strip().replace(" ", ""))
        device.save()
    if not accepted:
        raise WrongCode
    return device


def _require_allowed(device: Authenticator) -> None:
    allowed, why = device.verify_is_allowed()
    if allowed:
        return
    until: datetime = why["locked_until"]
    wait = math.ceil(max((until - timezone.now()).total_seconds(), 1))
    raise RateLimited(f"Too many wrong codes. Try again in {wait} seconds.", headers={"Retry-After": str(wait)})


def _accept(device: Authenticator, member: StaffMember, code: str) -> bool:
    if _accept_time_code(device, code) or (device.confirmed and _accept_recovery_code(member, code)):
        device.throttle_reset(commit=False)
        return True
    device.throttle_increment(commit=False)
    device.throttling_failure_count = min(device.throttling_failure_count, MOST_FAILURES)
    record_entry(member, "second_factor.checked", _target(member), outcome=Outcome.REFUSED, detail=WrongCode.message)
    return False


def _accept_time_code(device: Authenticator, code: str) -> bool:
    if len(code) != DIGITS or not (code.isascii() and code.isdigit()):
        return False
    totp = TOTP(base64.b32decode(device.secret), STEP_SECONDS, digits=DIGITS)
    totp.time = time.time()
    if not totp.verify(int(code), TOLERANCE, device.last_step + 1):
        return False
    device.last_step = totp.t()
    return True


def _accept_recovery_code(member: StaffMember, code: str) -> bool:
    hashes = keyed_hashes(_plain(code))
    if not RecoveryCode.objects.filter(user_id=member.user_id or 0, code_hash__in=hashes).delete()[0]:
        return False
    left = RecoveryCode.objects.filter(user_id=member.user_id or 0).count()
    record_entry(member, "second_factor.recovery_code", _target(member), detail=f"{left} codes are left.")
    return True


def _new_codes(member: StaffMember) -> list[str]:
    codes = [random_suffix(CODE_LENGTH) for _ in range(RECOVERY_CODES)]
    RecoveryCode.objects.filter(user_id=member.user_id or 0).delete()
    made = [RecoveryCode(user_id=member.user_id or 0, code_hash=keyed_hash(code)) for code in codes]
    RecoveryCode.objects.bulk_create(made)
    return ["-".join(code[i : i + 4] for i in range(0, CODE_LENGTH, 4)) for code in codes]


def _plain(code: str) -> str:
    return code.replace("-", "").lower()


def _target(member: StaffMember) -> Target:
    return Target("auth.user", str(member.user_id), member.name)
