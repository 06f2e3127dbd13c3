"""Files of rules: those that a site sends, and those that are stored beside a release."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from pages.releases.received import Received
from pages.releases.rules import (
    HeaderRule,
    LinesRefused,
    RedirectRule,
    Rules,
    parse_headers,
    parse_redirects,
)
from pages.releases.store_paths import PUBLIC

RULES = "rules.json"
# Empty files, by which the edge knows that it has to ask for the rules.
HEADERS_MARKER = "has-headers"
REDIRECTS_MARKER = "has-redirects"
# A link to `public` if there are no rules for headers. The edge looks there first, and mostly nowhere else.
SERVED = "served"
FILE_BYTES = 256 * 1024


def take_rules(release: Path, received: Received) -> Rules:
    """Take `_headers` and `_redirects` out of the served files; write rules, markers and links. Raise OSError."""
    headers, redirects = LinesRefused(), LinesRefused()
    rules = Rules(
        parse_headers(_take_text(release, "_headers", received), headers),
        parse_redirects(_take_text(release, "_redirects", received), redirects),
    )
    for name, refused in (("_headers", headers), ("_redirects", redirects)):
        for line, reason in refused.lines:
            received.skip(f"{name}:{line}", reason)
    if rules != Rules():
        (release / RULES).write_text(_as_json(rules))
    for marker, wanted in ((HEADERS_MARKER, rules.headers), (REDIRECTS_MARKER, rules.redirects)):
        if wanted:
            (release / marker).touch(0o644)
    if not rules.headers:
        (release / SERVED).symlink_to(PUBLIC)
    return rules


def read_rules(release: Path) -> Rules:
    """Return the rules of a release. Raise OSError, ValueError."""
    with suppress(FileNotFoundError):
        found = json.loads((release / RULES).read_text())
        return Rules(
            tuple(
                HeaderRule(path, tuple((name, value) for name, value in headers)) for path, headers in found["headers"]
            ),
            tuple(RedirectRule(*values) for values in found["redirects"]),
        )
    return Rules()


def _take_text(release: Path, name: str, received: Received) -> str:
    file = received.files.pop(name, None)
    if file is None:
        return ""
    path = release / PUBLIC / name
    try:
        if file.size > FILE_BYTES:
            raise ValueError("larger than 256 KiB")
        return path.read_text("utf-8-sig")
    except ValueError as error:
        received.skip(name, "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error))
        return ""
    finally:
        path.unlink()


def _as_json(rules: Rules) -> str:
    return json.dumps(
        {
            "headers": [[rule.path, rule.headers] for rule in rules.headers],
            "redirects": [[rule.source, rule.target, rule.status] for rule in rules.redirects],
        }
    )
