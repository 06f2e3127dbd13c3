"""Payment of a deploy: held when it is requested, charged when its release is live, given back when it fails.

Each is in the transaction that writes the deploy's row, so that a process that dies leaves both or neither. If the row
is gone without a charge or a return, the hold ends by itself some time after the deploy's deadline.
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

# A hold outlives the deadline by this much: a release that is made becomes live however long that takes.
HOLD_MARGIN = timedelta(hours=1)


def hold_begin(deploy: PageDeploy, payer: Namespace) -> None:
    """Hold the price of a deploy that is queued in the same transaction. Raise QuotaExceeded."""
    amount = _price(deploy)
    if not amount:
        return
    until = timezone.now() + timedelta(seconds=settings.ENV.deploy_seconds) + HOLD_MARGIN
    credits_hold(namespace=payer, service=Service.DEPLOYMENT, amount=amount, key=_key(deploy), until=until)


def hold_end(deploy: PageDeploy) -> None:
    """Charge a deploy, by the price of the time when it was requested. Once: its claim ends in the transaction.

    If the balance has no room for it, the deploy is not charged, and the log says so.
    """
    amount = _price(deploy)
    if not amount:
        return
    payer = _payer(deploy)
    key, purpose = _key(deploy), Purpose("", deploy.workspace_id, f"A deploy of the page {deploy.page.slug}.")
    try:
        settled = hold_settle(namespace=payer, service=Service.DEPLOYMENT, key=key, amount=amount, purpose=purpose)
        if settled is None:  # the hold has expired: for so long the release could not be made live
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
    """Return the price, which is the same at every call: a rate that has begun is never changed."""
    return Rates.load().credits(Unit.PAGE_DEPLOY, min(deploy.created_at, timezone.now()))


def _payer(deploy: PageDeploy) -> Namespace:
    """Return the namespace that the page was in when the deploy was requested, even if the page was moved since.

    A deploy from the time before holds has none: the page's present namespace pays.
    """
    page = deploy.page
    return Namespace(pk=deploy.payer_id or page.namespace_id, account_id=page.account_id)
