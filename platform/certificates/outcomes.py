"""The values that a step leaves in a row when its order waits, fails or ends, and the time of the next step."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone

from certificates import ca_account, tokens
from certificates.ca_errors import CaError
from certificates.leases import LEASE
from certificates.models import AcmeAccount, Certificate, Status

NO_ORDER: Final[dict[str, Any]] = {
    "order_key": None,
    "order_url": "",
    "order_began_at": None,
    "challenge_token": "",
    "account": None,
}
FIRST_PAUSE = 60.0
LONGEST_PAUSE = 6 * 3600.0
# The pause of the CA as a whole, so that many names do not ask in vain.
CA_PAUSE = 30.0
# So that a name does not wait for hours once the CA is back.
LONGEST_CA_RETRY = 600.0


def pause_after(failures: int, longest: float = LONGEST_PAUSE) -> timedelta:
    """Return the pause, which doubles with each failure in a row: a minute after the first."""
    return timedelta(seconds=min(FIRST_PAUSE * 2 ** min(failures - 1, 20), longest))


def renewal_time(not_before: datetime, expires_at: datetime, now: datetime | None = None) -> datetime:
    """Return when two thirds of a certificate's lifetime are over; of what is left of it `now`, if it began before.

    A CA may issue certificates that began long ago: by their whole lifetime each would be renewed at once.
    """
    begin = not_before if now is None else max(not_before, now)
    return expires_at - (expires_at - begin) / 3


def record_waiting(row: Certificate, sentence: str, until: datetime, **changes: Any) -> None:
    """Record that no order is placed now, for a reason other than a refusal. Raise ClaimLost."""
    LEASE.write_row(row, status=_status(row, Status.PENDING), error=sentence[:500], next_attempt_at=until, **changes)


def record_failure(row: Certificate, account: AcmeAccount, error: CaError) -> None:
    """Write what the CA refused, or failed to do. Raise ClaimLost.

    The order under way is kept if the CA may go on with it later, and forgotten if it refused.
    """
    now = timezone.now()
    if error.problem == "accountDoesNotExist":
        ca_account.account_forget_url(account)
    elif error.fault == "ca":
        ca_account.pause_account(account, now + timedelta(seconds=max(error.pause or 0.0, CA_PAUSE)))
    longest = LONGEST_CA_RETRY if error.fault == "ca" else LONGEST_PAUSE
    until = now + max(pause_after(row.failures + 1, longest), timedelta(seconds=error.pause or 0.0))
    # A request for an order that got no answer may have made one all the same (orders._resume_placing).
    is_over = error.fault == "name" or (error.fault == "limit" and not row.order_url)
    changes: dict[str, Any] = {"failures": row.failures + 1}
    if error.fault == "limit":
        changes["limited_until"] = until
    if is_over:
        tokens.remove_token(row.challenge_token)
        changes |= NO_ORDER
    if error.fault == "name":
        status = _status(row, Status.FAILED)
        LEASE.write_row(row, status=status, error=error.sentence[:500], next_attempt_at=until, **changes)
    else:
        sentence = f"{error.sentence} The next attempt is made after {until:%Y-%m-%d %H:%M} UTC."
        record_waiting(row, sentence, until, **changes)


def _status(row: Certificate, without: Status) -> str:
    """Return the new status. A certificate that is served, or that has expired, keeps its status; the sentence says
    what its renewal met.
    """
    return row.status if row.chain else without
