"""The routes of sandboxes, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from accounts.permissions import NAMESPACE_SCOPES
from sandboxes.level import urls
from sandboxes.models import Sandbox
from tests.callers import Caller
from tests.route import Route
from tests.sandboxes.rows import make_sandbox
from workspaces.states import Status

S = "sandbox/{sandbox_id}"
ROUTES = [
    Route("POST", "sandbox", scopes=NAMESPACE_SCOPES, reads=True),
    Route("GET", "sandbox"),
    Route("GET", S),
    Route("DELETE", S),
    Route("POST", f"{S}/start"),
    Route("POST", f"{S}/stop"),
    Route("POST", f"{S}/restart"),
    Route("POST", f"{S}/snapshot", reads=True),
    Route("POST", f"{S}/restore", reads=True),
    Route("POST", f"{S}/fork", scopes=NAMESPACE_SCOPES, reads=True),
    Route("POST", f"{S}/regenerate-token"),
    Route("GET", f"{S}/metrics"),
]
# The sandbox level, whose credential is the sandbox's token (tests/sandboxes/test_tokens.py).
NOT_WALKED = {f"s/{{sandbox_id}}/{pattern.pattern}" for pattern in urls.urlpatterns}
# Files of the terminal page, which are public (tests/sandboxes/level/test_terminal_page.py).
NOT_WALKED.add("s/{sandbox_id}/terminal/{version}/{name}")
DOCUMENTED = """
POST /sandbox
GET /sandbox
GET /sandbox/:id
DELETE /sandbox/:id
POST /sandbox/:id/start
POST /sandbox/:id/stop
POST /sandbox/:id/restart
POST /sandbox/:id/regenerate-token
GET /sandbox/:id/metrics
"""


def make_rows(owner: Caller) -> dict[str, Sandbox]:
    """A sandbox whose machine failed, on no host, so that no accepted request waits."""
    made, _ = make_sandbox(owner.account, status=Status.FAILED, slug="the-sandbox")
    return {"sandbox_id": made}
