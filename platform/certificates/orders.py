"""One order for a name's certificate, carried on by steps that each may be the last of a process.

What an order has come to is asked of the CA each time, by its URL; here are only the URL and the private key.
The key is stored before the CA is asked for the order, the URL at once after. Between these two the process may
die: then the CA is asked for its list of the account's orders, if it has one, before another is placed.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from certificates import access, ca_account, hooks, limits, tokens
from certificates.ca import CaClient, Challenge, Order
from certificates.ca_errors import CaError
from certificates.keys import ChainInvalid, check_chain, new_key, signing_request
from certificates.leases import LEASE, LONGEST_CA_PAUSE, STEP_SECONDS
from certificates.models import AcmeAccount, Certificate, Status
from certificates.outcomes import (
    NO_ORDER,
    pause_after,
    record_failure,
    record_waiting,
    renewal_time,
)
from common.work.clock import moment_has_come

logger = logging.getLogger(__name__)

ORDER_LIFE = timedelta(days=1)
OFF_PAUSE = timedelta(minutes=1)
CA_FAILS = "The certificate authority does not answer at present."
CA_WORKS = "The certificate authority has not finished the order yet."
NO_DISK = "The platform cannot store the token that the certificate authority looks for; it tries again."
# The age of an order from which on CA_WORKS is shown.
_QUIET = timedelta(minutes=1)
_SHORTEST_POLL, _LONGEST_POLL = 1.0, 3600.0


def order_advance(row: Certificate) -> None:
    """Advance the order of a leased row that is due, as far as it comes now, and set its next time. Raise ClaimLost."""
    now = timezone.now()
    if not ca_account.is_on():
        LEASE.write_row(row, next_attempt_at=now + OFF_PAUSE)
        return
    account = ca_account.account_current()
    if account.paused_until and not moment_has_come(account.paused_until, now, LONGEST_CA_PAUSE):
        record_waiting(row, row.error or CA_FAILS, account.paused_until)
        return
    try:
        _advance(row, account, time.monotonic() + STEP_SECONDS)
    except CaError as error:
        record_failure(row, account, error)
    except OSError as error:  # of the token's file; a full disk
        logger.error("%s: its token cannot be stored: %s", row.name, error)
        pause = pause_after(row.failures + 1, longest=600)
        record_waiting(row, NO_DISK, timezone.now() + pause, failures=row.failures + 1)


def order_drop(row: Certificate) -> None:
    """Forget the order under way, its key and its token's file."""
    tokens.remove_token(row.challenge_token)
    LEASE.write_row(row, **NO_ORDER)


def _advance(row: Certificate, account: AcmeAccount, until: float) -> None:
    if row.order_key is not None and _is_stale(row, account):
        order_drop(row)
    if row.order_key is None:
        if not _is_reached_by_name(row):
            return
        client = access.account_registered(account, until)
        if not _begin(row, account):
            return
        order = _place(row, client)
    else:
        client = access.account_registered(account, until)
        order = client.order_read(row.order_url) if row.order_url else _resume_placing(row, client)
    _carry_on(row, client, order)


def _is_stale(row: Certificate, account: AcmeAccount) -> bool:
    """Return whether the order is of another CA, because the setting was changed, or its own CA never finished it."""
    return row.account_id != account.pk or not row.order_began_at or row.order_began_at < timezone.now() - ORDER_LIFE


def _is_reached_by_name(row: Certificate) -> bool:
    """Return whether the CA would find us under the name; else the reason is stored. The CA is not asked."""
    sentence = hooks.dns_points_here.one(row.name)
    if sentence:
        pause = pause_after(row.failures + 1, longest=3600)
        record_waiting(row, sentence, timezone.now() + pause, failures=row.failures + 1)
    return not sentence


def _begin(row: Certificate, account: AcmeAccount) -> bool:
    """Count the order and store its key, if the limits allow it now. The account's lock makes the limits exact."""
    with transaction.atomic():
        AcmeAccount.objects.select_for_update().get(pk=account.pk)
        now = timezone.now()
        allowed = limits.allowed_at(row.name, row.owner, now)
        if allowed == now:
            limits.attempt_count(row.name, row.owner, now)
            LEASE.write_row(row, order_key=new_key(), order_began_at=now, account=account)
            return True
    _wait_for_limit(row, allowed)
    return False


def _wait_for_limit(row: Certificate, allowed: datetime) -> None:
    sentence = f"The limit of orders is reached; the next one is placed after {allowed:%Y-%m-%d %H:%M} UTC."
    record_waiting(row, sentence, allowed)


def _place(row: Certificate, client: CaClient) -> Order:
    order = client.order_place(row.name)
    LEASE.write_row(row, order_url=order.url)
    return order


def _resume_placing(row: Certificate, client: CaClient) -> Order:
    """Resume placing after the process died with the key stored: the order may have been placed."""
    order = client.order_find(row.name)
    if order is None:
        return _place(row, client)
    LEASE.write_row(row, order_url=order.url)
    return order


def _carry_on(row: Certificate, client: CaClient, order: Order) -> None:
    if order.status == "pending":
        _prove_control(row, client, order)
        return
    if order.status == "ready":
        order = client.order_finalize(order, signing_request(row.name, row.order_key))
    if order.status == "valid":
        _store_chain(row, client.read_chain(order.certificate))
    elif order.status == "invalid":
        raise CaError(_reason(client, order), problem="invalid")
    else:
        _look_later(row, order)


def _prove_control(row: Certificate, client: CaClient, order: Order) -> None:
    """Show the token, then have the CA look for it. Each may have been done by a process that died since."""
    for url in order.authorizations:
        challenge = client.read_challenge(url)
        if challenge.authorization_status in ("invalid", "expired", "revoked", "deactivated"):
            raise CaError(challenge.error or "The CA refused: it did not find the name here.", problem="invalid")
        if challenge.authorization_status != "pending":
            continue
        # Stored first, so that the file is always known.
        LEASE.write_row(row, challenge_token=challenge.token)
        tokens.write_token(challenge.token, challenge.content)
        if challenge.status == "pending":
            _answer(client, url, challenge)
    _look_later(row, order)


def _answer(client: CaClient, authorization: str, challenge: Challenge) -> None:
    """Answer the challenge. A second answer, after one that was not stored or is still checked, may be refused without
    harm.
    """
    try:
        client.answer_challenge(challenge.url)
    except CaError as error:
        if error.fault != "name":
            raise
        if client.read_challenge(authorization).authorization_status not in ("pending", "valid"):
            raise
        logger.info("an answer to a challenge was refused: %s", error)


def _reason(client: CaClient, order: Order) -> str:
    """Return why an order is invalid: its authorization says it."""
    if order.error or not order.authorizations:
        return order.error or "The CA refused: no reason was given"
    return client.read_challenge(order.authorizations[0]).error or "The CA refused: no reason was given"


def _store_chain(row: Certificate, text: str) -> None:
    try:
        checked = check_chain(text, row.name, row.order_key, timezone.now())
    except ChainInvalid as error:
        raise CaError("The CA sent a certificate that is not valid for this name.") from error
    # Before the row forgets its name.
    tokens.remove_token(row.challenge_token)
    key = row.order_key
    LEASE.write_row(
        row,
        **{**NO_ORDER, "chain": checked.pem, "key": key, "not_before": checked.not_before},
        expires_at=checked.expires_at,
        issued_by=row.account.directory if row.account else "",
        status=Status.ACTIVE,
        error="",
        failures=0,
        next_attempt_at=renewal_time(checked.not_before, checked.expires_at, timezone.now()),
    )


def _look_later(row: Certificate, order: Order) -> None:
    """Set the next look: each second at first, then less and less often; or when the CA says."""
    age = timezone.now() - (row.order_began_at or timezone.now())
    seconds = min(max(order.pause or age.total_seconds() / 10, _SHORTEST_POLL), _LONGEST_POLL)
    sentence = CA_WORKS if age > _QUIET else ""
    LEASE.write_row(row, next_attempt_at=timezone.now() + timedelta(seconds=seconds), error=sentence)
