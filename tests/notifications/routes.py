"""The routes of notifications, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from django.db.models import Model

from accounts.permissions import ACCOUNT_ONLY
from tests.callers import Caller
from tests.notifications.rows import fcm_device, send_token
from tests.route import Route
from tests.workspaces.rows import make_workspace

ROUTES = [
    Route("GET", "notifications/tokens"),
    Route("POST", "notifications/tokens", reads=True),
    Route("POST", "notifications/tokens/{token_id}/revoke"),
    Route("DELETE", "notifications/tokens/{token_id}"),
    Route("GET", "notifications/devices", scopes=ACCOUNT_ONLY),
    Route("POST", "notifications/devices", scopes=ACCOUNT_ONLY, reads=True),
    Route("DELETE", "notifications/devices/{device_id}", scopes=ACCOUNT_ONLY),
    Route("GET", "notifications/web-push-key"),
]
# By the send token (tests/notifications/test_tokens.py); public files (tests/notifications/test_browser_page.py).
NOT_WALKED = {"notifications/send", "notifications/browser", "notifications/browser/{name}"}
ADDRESSED_BY = {"device_id": "device_id"}
DOCUMENTED = """
POST /notifications/tokens
GET /notifications/tokens
POST /notifications/tokens/:id/revoke
DELETE /notifications/tokens/:id
POST /notifications/send
"""


def make_rows(owner: Caller) -> dict[str, Model]:
    """A token of a workspace of the caller, and a device."""
    token, _ = send_token(make_workspace(owner.account, name="of a token", slug="of-a-token"))
    return {"token_id": token, "device_id": fcm_device(owner.account, "walked")}
