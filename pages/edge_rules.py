"""Answers to the edge about rules of a release (`_headers`, `_redirects`), given from files before Django.

`/internal/edge/page-headers`: 200 with the headers of a path. `/internal/edge/page-redirect`: 204 if no rule fits, 200
with `X-Rewrite` for a path of the site that is served instead, else the redirect for the visitor. The edge sends the
host in its own header and the path, escaped, in `X-Page-Path`. It routes nothing from outside to these paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

from django.conf import settings

from common.edge_header import VARIABLE, edge_facts
from edge.addresses import page_addresses
from edge.domain_files import name_folder
from pages.releases.rule_matching import RuleMatcher
from pages.releases.rules import REWRITE
from pages.releases.rules_files import read_rules

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

HEADERS = "/internal/edge/page-headers"
REDIRECT = "/internal/edge/page-redirect"
REASONS = {200: "OK", 204: "No Content", 404: "Not Found"}
_LABEL = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)(?:--r([1-9][0-9]{0,8}))?")
_QUERY = re.compile(r"[\x21-\x7e]{1,4000}")
Answer = tuple[int, list[tuple[str, str]]]


class PageRulesPath:
    """WSGI middleware that answers the edge's requests for rules."""

    def __init__(self, inner: WSGIApplication) -> None:
        self._inner = inner

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") not in (HEADERS, REDIRECT):
            return self._inner(environ, start_response)
        status, headers = _answer_of(environ)
        start_response(f"{status} {REASONS.get(status, 'Redirect')}", [*headers, ("Content-Length", "0")])
        return [b""]


def _answer_of(environ: WSGIEnvironment) -> Answer:
    facts = edge_facts(environ.get(VARIABLE, ""), settings.SECRET_KEY)
    matcher = _matcher_of(facts.host) if facts else None
    if matcher is None:
        return 404, []
    sent = environ.get("HTTP_X_PAGE_PATH", "")
    # No path of a site is longer when percent-encoded, and each rule costs a comparison.
    if len(sent) > 3 * settings.ENV.page_path_max_bytes:
        return 404, []
    path = unquote_plus(sent)
    if environ["PATH_INFO"] == HEADERS:
        return 200, list(matcher.headers_of(path).items())
    return _redirect_answer(matcher, path, environ.get("HTTP_X_PAGE_QUERY", ""))


def _redirect_answer(matcher: RuleMatcher, path: str, query: str) -> Answer:
    found = matcher.redirect_of(path)
    if found is None:
        return 204, []
    target, status = found
    if status == REWRITE:
        return 200, [("X-Rewrite", target)]
    if _QUERY.fullmatch(query) and "?" not in target and "#" not in target:
        target = f"{target}?{query}"
    return status, [("Location", target), ("Cache-Control", "no-store")]


def _matcher_of(host: str) -> RuleMatcher | None:
    """Return the rules of a host's release; None if the host is no page's, or the release is gone."""
    try:
        release = _release_of(host)
        return _matcher_at(str(release.resolve(strict=True))) if release else None
    except (OSError, ValueError):
        return None


def _release_of(host: str) -> Path | None:
    """Return the folder of a host's release, which may be gone."""
    host = host.lower().removesuffix(".")
    label, _, domain = host.partition(".")
    if domain not in page_addresses(settings.ENV.pages_url):
        return name_folder(Path(settings.STATE), host) / "current"
    found = _LABEL.fullmatch(label)
    if found is None:
        return None
    page = Path(settings.STATE) / "pages" / "by-slug" / domain / found[1]
    return page / "releases" / found[2] if found[2] else page / "current"


@lru_cache(maxsize=64)
def _matcher_at(release: str) -> RuleMatcher:
    """Return the rules of a release folder.

    They may be cached: a release never changes, and no number is used twice for a page.
    """
    return RuleMatcher(read_rules(Path(release)))
