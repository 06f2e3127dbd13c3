"""The routes of pages, as entries of the route walk (tests/routes.py)."""

from __future__ import annotations

from accounts.permissions import NAMESPACE_SCOPES
from pages.models import Page
from tests.callers import Caller
from tests.pages.rows import make_page
from tests.route import Route

PAGE = "pages/{page}"
ROUTES = [
    Route("GET", "pages", scopes=NAMESPACE_SCOPES),
    Route("POST", "pages", scopes=NAMESPACE_SCOPES, reads=True),
    Route("POST", "domain/check-slug", scopes=NAMESPACE_SCOPES, reads=True),
    Route("GET", PAGE, scopes=NAMESPACE_SCOPES),
    Route("PUT", PAGE, scopes=NAMESPACE_SCOPES, reads=True),
    Route("DELETE", PAGE, scopes=NAMESPACE_SCOPES),
    Route("POST", f"{PAGE}/deploy", scopes=NAMESPACE_SCOPES, reads=True),
    Route("POST", f"{PAGE}/enable", scopes=NAMESPACE_SCOPES),
    Route("POST", f"{PAGE}/disable", scopes=NAMESPACE_SCOPES),
    Route("GET", f"{PAGE}/releases", scopes=NAMESPACE_SCOPES),
    Route("POST", f"{PAGE}/rollback", scopes=NAMESPACE_SCOPES, reads=True),
    Route("GET", f"{PAGE}/domain", scopes=NAMESPACE_SCOPES),
    Route("POST", f"{PAGE}/domain", scopes=NAMESPACE_SCOPES, reads=True),
    Route("DELETE", f"{PAGE}/domain", scopes=NAMESPACE_SCOPES),
    Route("POST", f"{PAGE}/domain/check", scopes=NAMESPACE_SCOPES, reads=True),
    Route("POST", f"{PAGE}/domain/ssl/renew", scopes=NAMESPACE_SCOPES),
]
ADDRESSED_BY = {"page": "slug"}
DOCUMENTED = """
GET /pages
POST /pages
PUT /pages/:slug
POST /pages/:slug/deploy
POST /pages/:slug/enable
POST /pages/:slug/disable
DELETE /pages/:slug
POST /pages/:slug/domain
POST /pages/:slug/domain/check
GET /pages/:slug/domain
DELETE /pages/:slug/domain
POST /pages/:slug/domain/ssl/renew
"""


def make_rows(owner: Caller) -> dict[str, Page]:
    """A page of the caller's default namespace."""
    return {"page": make_page(owner.account, slug="of-the-walk")}
