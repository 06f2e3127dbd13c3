"""The page and its files as responses. They are the same for every address, whether or not a sandbox is there."""

from __future__ import annotations

import secrets
from pathlib import Path

from django.http import HttpResponse

from common.errors import NotFound
from sandboxes.level.terminal_page.files import TYPES, page_files

FOREVER = "public, max-age=31536000, immutable"
# Scripts and styles by nonce alone, also those styles that the terminal makes; it gives cells of 24-bit colours a style
# attribute. Nothing is loaded from anywhere else, sent by a form, or framed.
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; style-src-attr 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


def page_response() -> HttpResponse:
    """Return the page, with a nonce of its own. Raise PageNotInstalled."""
    found, nonce = page_files(), secrets.token_urlsafe(16)
    headers = {**HEADERS, "Content-Security-Policy": POLICY.format(nonce=nonce), "Cache-Control": "no-store"}
    text = found.page.substitute(nonce=nonce, version=found.version)
    return HttpResponse(text, content_type="text/html; charset=utf-8", headers=headers)


def file_response(version: str, name: str) -> HttpResponse:
    """Return one of the page's files. Raise NotFound (no such file, or of another version), PageNotInstalled."""
    found = page_files()
    data = found.files.get(name)
    if data is None or version != found.version:
        raise NotFound("There is no such file of the terminal page.")
    headers = {**HEADERS, "Cache-Control": FOREVER}
    return HttpResponse(data, content_type=TYPES[Path(name).suffix], headers=headers)
