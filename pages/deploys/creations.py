"""Pages whose creation failed. The same request can be sent again, so these pages must not keep their slug.

The request that waits removes its page and says why. If its process died, the next creation that wants the slug removes
the page, or the sweep does.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from accounts.models import Account
from pages.models import Page, PageDeploy
from pages.services import page_discard
from pages.slugs import is_taken
from pages.states import DeployState

BATCH = 100
# A request that misses its wake-up reads the row every three seconds, and must find the error there.
READ_WITHIN = timedelta(seconds=10)


def failed_creations() -> QuerySet[Page]:
    """Return pages whose only deploy failed while a request waited for it, and that still exist. They have no release.

    A page whose deploy failed after the wait stays, with its failure: its owner was answered with 202 and looks at it.
    """
    now, wait = timezone.now(), timedelta(seconds=settings.ENV.deploy_wait_seconds)
    ended = Q(finished_at__lt=now - READ_WITHIN) | Q(finished_at__gt=now + READ_WITHIN)
    waited_for = Q(finished_at__lt=F("page__created_at") + wait)
    others = PageDeploy.objects.filter(page=OuterRef("page")).exclude(pk=OuterRef("pk"))
    failed = PageDeploy.objects.filter(ended, waited_for, ~Exists(others), state=DeployState.FAILED, page__release=None)
    return Page.objects.filter(pk__in=failed.values("page"))


def slug_available(account: Account, slug: str) -> bool:
    """Return whether a page of the account could have the slug.

    The slug of a creation that failed is available too: the next creation replaces it.
    """
    return not is_taken(slug) or failed_creations().filter(account=account, slug=slug).exists()


def discard_failed_creations() -> int:
    """Delete one batch of pages whose creation failed. Return how many."""
    return sum(page_discard(page=page) for page in list(failed_creations().order_by("pk")[:BATCH]))
