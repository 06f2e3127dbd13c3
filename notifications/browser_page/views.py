"""The page and its files. They are public: they hold nothing of any account."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.viewsets import ViewSet

from common.errors import NotFound

FILES = Path(__file__).parent / "files"
PAGE = "page.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
# Nothing from elsewhere, nothing inline; requests to this service only.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # A worker is looked for in its newest version.
    "Cache-Control": "no-cache",
}


class BrowserPageViewSet(ViewSet):
    """Public."""

    authentication_classes = []
    permission_classes = []
    http_method_names = ["get", "head"]

    @extend_schema(exclude=True)
    def read(self, request: Request, name: str = PAGE) -> HttpResponse:
        """The page, or one of its files."""
        return HttpResponse(page_file(name), content_type=TYPES[Path(name).suffix], headers=HEADERS)


@cache
def _all_files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in FILES.iterdir() if path.suffix in TYPES}


def page_file(name: str) -> bytes:
    """Raise NotFound."""
    found = _all_files().get(name)
    if found is None:
        raise NotFound("There is no such file of this page.")
    return found
