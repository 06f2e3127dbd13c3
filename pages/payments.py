"""What a deploy costs: held when it is requested, charged when its release is live, given back when it fails.

Each is in the transaction that writes the deploy's row, so that a process that dies leaves both or neither. A hold
ends by itself some time after the deploy's deadline, should the row be gone without one of these.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from decimal import Decimal

from django.conf import settings
from django.utils import timezone

from common.errors import Conflict
from credits.entries import Purpose
from credits.holds import credits_hold, hold_settle, hold_void
from credits.ledger import credits_charge
from credits.models import Service, Unit
from credits.services import Rates
from namespaces.models import Namespace
from pages.models import PageDeploy

logger = logging.getLogger(__name__)

# Beyond the deadline: a release that is made is made live however long that takes.
HOLD_MARGIN = timedelta(hours=1)


def hold_begin(deploy: PageDeploy, payer: Namespace) -> None:
    """Hold the price of a deploy that is queued in the same transaction. Raises QuotaExceeded."""
    amount = _price(deploy)
    if not amount:
        return
    until = timezone.now() + timedelta(seconds=settings.ENV.deploy_seconds) + HOLD_MARGIN
    credits_hold(namespace=payer, service=Service.DEPLOYMENT, amount=amount, key=_key(deploy), until=until)


def hold_end(deploy: PageDeploy) -> None:
    """Charge a deploy, by the price of the time when it was requested. Once, as its claim ends in the transaction.

    What a balance has no room for is not charged, and the log says so.
    """
    amount = _price(deploy)
    if not amount:
        return
    payer = _payer(deploy)
    key, purpose = _key(deploy), Purpose("", deploy.workspace_id, f"A deploy of the page {deploy.page.slug}.")
    try:
        settled = hold_settle(namespace=payer, service=Service.DEPLOYMENT, key=key, amount=amount, purpose=purpose)
        if settled is None:  # its hold has expired, as its release could not be made live for so long
            late = Purpose(key, purpose.workspace_id, purpose.description)
            credits_charge(namespace=payer, service=Service.DEPLOYMENT, amount=amount, purpose=late)
    except Conflict as exc:
        logger.error("%s is not charged: %s", deploy.pk, exc.message)


def hold_release(deploy: PageDeploy) -> None:
    """Give the hold back. Idempotent."""
    hold_void(namespace=_payer(deploy), service=Service.DEPLOYMENT, key=_key(deploy))


def _key(deploy: PageDeploy) -> str:
    return f"deploy:{deploy.pk}"


def _price(deploy: PageDeploy) -> Decimal:
    """The same at every call: a rate that has begun is never changed."""
    return Rates.load().credits(Unit.PAGE_DEPLOY, min(deploy.created_at, timezone.now()))


def _payer(deploy: PageDeploy) -> Namespace:
    """Its page's namespace when it was requested, also where the page has been moved since. One that was requested
    before holds were made has none: the page's namespace of now.
    """
    page = deploy.page
    return Namespace(pk=deploy.payer_id or page.namespace_id, account_id=page.account_id)
