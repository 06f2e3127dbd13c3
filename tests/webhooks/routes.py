"""The routes of webhooks, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from django.db.models import Model

from accounts.permissions import NAMESPACE_SCOPES
from namespaces.models import Namespace
from tests.callers import Caller
from tests.route import Route
from tests.webhooks.outbox import subscribe
from webhooks.events import TEST_EVENT, event_send_to

W = "webhooks/{webhook_id}"
ROUTES = [
    Route("GET", "webhooks", scopes=NAMESPACE_SCOPES),
    Route("POST", "webhooks", scopes=NAMESPACE_SCOPES, reads=True),
    Route("GET", "webhooks/events", scopes=NAMESPACE_SCOPES),
    Route("POST", "webhooks/deliveries/{delivery_id}/redeliver", scopes=NAMESPACE_SCOPES),
    Route("PUT", W, scopes=NAMESPACE_SCOPES, reads=True),
    Route("DELETE", W, scopes=NAMESPACE_SCOPES),
    Route("POST", f"{W}/test", scopes=NAMESPACE_SCOPES),
    Route("GET", f"{W}/deliveries", scopes=NAMESPACE_SCOPES),
    Route("POST", f"{W}/redeliver", scopes=NAMESPACE_SCOPES, reads=True),
    Route("POST", f"{W}/rotate", scopes=NAMESPACE_SCOPES, reads=True),
]
ADDRESSED_BY = {"webhook_id": "public_id"}


def make_rows(owner: Caller) -> dict[str, Model]:
    """A webhook of the caller's default namespace, and a delivery of it."""
    default = Namespace.objects.get(account=owner.account, is_default=True)
    webhook = subscribe(owner.account, namespace_id=default.pk, namespace_slug=default.slug)
    return {"webhook_id": webhook, "delivery_id": event_send_to(webhook, TEST_EVENT, {})}
