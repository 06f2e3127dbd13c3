"""`_headers` and `_redirects` of a site, in the form that Netlify and Cloudflare Pages share.

    _redirects: /from/:name/*  /to/:name/:splat  301          _headers: /path/*
                                                                            Name: value

`*` ends a path of `_redirects` and is its `:splat`; `:name` is one segment. The first rule that fits counts. In
`_headers` one `*` may be anywhere, all rules that fit count, and values of one name are joined. Rules that only one of
the two services knows (conditions, proxies, `!`) are not applied here, and are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

REDIRECTS_MAX = 2_000
# Limit for redirects with placeholders: each costs a comparison for each path.
DYNAMIC_MAX = 100
HEADER_PATHS_MAX = 100
HEADERS_MAX = 1_000
# Limit for all names and values together: clients and proxies refuse answers with a few times more.
HEADERS_CHARACTERS_MAX = 16_384
LINE_CHARACTERS = 2_000
STATUSES = frozenset({301, 302, 303, 307, 308})
# Without a status the two services differ (301, 302); what browsers keep for ever is not guessed.
DEFAULT_STATUS = 302
REWRITE = 200
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]{1,2000}")
PLACEHOLDER = re.compile(r":([A-Za-z][A-Za-z0-9_]{0,63})")
_PATH = re.compile(r"/[\x21-\x7e\u00a1-\U0010ffff]*")
# Headers of the connection, of the body as the edge sends it, and cookies, which other sites of the domain would
# receive.
_OF_THE_EDGE = """
connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade
content-length content-encoding content-range accept-ranges date etag last-modified server via vary location
alt-svc set-cookie age status x-request-id
"""
_REFUSED = frozenset(_OF_THE_EDGE.split())


class LineRefused(ValueError):
    """Error of a line that is not a rule; the text says why."""


@dataclass(frozen=True, slots=True)
class RedirectRule:
    """Redirect with `source` and `target` as they are written."""

    source: str
    target: str
    status: int

    @property
    def is_dynamic(self) -> bool:
        """Return whether more than one path fits."""
        return "*" in self.source or bool(PLACEHOLDER.search(self.source))


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """Headers for the paths that fit."""

    path: str
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a release, in their order."""

    headers: tuple[HeaderRule, ...] = ()
    redirects: tuple[RedirectRule, ...] = ()


@dataclass(slots=True)
class LinesRefused:
    """Line numbers (the first is 1) and reasons."""

    lines: list[tuple[int, str]] = field(default_factory=list)


def parse_redirects(text: str, refused: LinesRefused) -> tuple[RedirectRule, ...]:
    """Return the redirects of a text. Lines that are not rules go to `refused`; nothing is raised."""
    rules: list[RedirectRule] = []
    left = {True: DYNAMIC_MAX, False: REDIRECTS_MAX}
    for number, line in _lines(text):
        try:
            rule = _redirect(line.split())
            if left[rule.is_dynamic] == 0:
                raise LineRefused("too many redirects")
            left[rule.is_dynamic] -= 1
            rules.append(rule)
        except LineRefused as error:
            refused.lines.append((number, str(error)))
    return tuple(rules)


def parse_headers(text: str, refused: LinesRefused) -> tuple[HeaderRule, ...]:
    """Return the rules of a text, as `parse_redirects` does. A path without headers is not a rule."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    usable, count, size = False, 0, 0
    for number, line in _lines(text):
        try:
            if line[0] not in " \t":
                usable = False
                found.append((_header_path(line.strip(), len(found)), []))
                usable = True
            elif usable:
                count += 1
                name, value = _header(line.strip(), count)
                size += len(name) + len(value)
                if size > HEADERS_CHARACTERS_MAX:
                    raise LineRefused("too many headers")
                found[-1][1].append((name, value))
            else:
                raise LineRefused("header without a path")
        except LineRefused as error:
            refused.lines.append((number, str(error)))
    return tuple(HeaderRule(path, tuple(headers)) for path, headers in found if headers)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _redirect(words: list[str]) -> RedirectRule:
    comment = next((place for place, word in enumerate(words) if word.startswith("#")), len(words))
    source, target, status = [*words[:comment], "", ""][:3]
    if not target or len(words[:comment]) > 3 or sum(map(len, words)) > LINE_CHARACTERS:
        raise LineRefused("not `from to [status]`")
    code = (
        int(status) if status.isascii() and status.isdigit() and len(status) == 3 else 0 if status else DEFAULT_STATUS
    )
    if code not in STATUSES | {REWRITE}:
        raise LineRefused("unknown status")
    _check_path(source)
    if "*" in source[:-1] or ("*" in source and not source.endswith("/*")):
        raise LineRefused("`*` is not at the end")
    _check_target(target, code, {*PLACEHOLDER.findall(source), *(["splat"] if source.endswith("*") else [])})
    return RedirectRule(source, target, code)


def _check_path(path: str) -> None:
    if not _PATH.fullmatch(path) or "\\" in path or path.startswith("//") or "?" in path or "#" in path:
        raise LineRefused("not a path")
    if any(":" in part and not PLACEHOLDER.fullmatch(part) for part in path.split("/")):
        raise LineRefused("a placeholder is not a whole segment")
    names = [*PLACEHOLDER.findall(path), *(["splat"] if "*" in path else [])]
    if len(set(names)) < len(names):
        raise LineRefused("a placeholder occurs twice")


def _check_target(target: str, code: int, names: set[str]) -> None:
    path = target
    if not target.startswith("/"):
        if code == REWRITE:
            raise LineRefused("foreign target with status 200")
        path = _foreign_path(target)
    if path and (not _PATH.fullmatch(path) or path.startswith("//") or "\\" in path):
        raise LineRefused("not a path or an http address")
    if any(name not in names for name in PLACEHOLDER.findall(path)):
        raise LineRefused("unknown placeholder")


def _foreign_path(target: str) -> str:
    """Return the part after the host. Placeholders count only there, so that no visitor chooses the host."""
    try:
        parts = urlsplit(target)
        known = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        known = False
    found = re.match(r"https?://[A-Za-z0-9.\[\]-]+(?::\d{1,5})?(?=[/?#]|$)", target)
    if not (known and found):
        raise LineRefused("not a path or an http address")
    rest = target[found.end() :]
    return rest if rest.startswith("/") or not rest else f"/{rest}"


def _header_path(line: str, count: int) -> str:
    if count >= HEADER_PATHS_MAX:
        raise LineRefused("too many paths")
    if len(line) > LINE_CHARACTERS or line.count("*") > 1:
        raise LineRefused("not a path")
    _check_path(line)
    return line


def _header(line: str, count: int) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    name, value = name.strip(), value.strip()
    if count > HEADERS_MAX:
        raise LineRefused("too many headers")
    if not colon or not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
        raise LineRefused("not `Name: value`")
    if name.lower() in _REFUSED or name.lower().startswith("x-edge"):
        raise LineRefused("header that the edge sets")
    return name, value
