"""Which rules of a release fit a path, and what they say."""

from __future__ import annotations

import re
from urllib.parse import quote

from pages.releases.rules import PLACEHOLDER, RedirectRule, Rules


class RuleMatcher:
    """The rules of a release, made ready once. Redirects without placeholders cost one look-up."""

    def __init__(self, rules: Rules) -> None:
        self._headers = [(_HeaderPath(rule.path), rule.headers) for rule in rules.headers]
        self._plain: dict[str, tuple[int, RedirectRule]] = {}
        self._dynamic: list[tuple[int, re.Pattern[str], RedirectRule]] = []
        for place, rule in enumerate(rules.redirects):
            if rule.is_dynamic:
                self._dynamic.append((place, _pattern(rule.source), rule))
            else:
                self._plain.setdefault(rule.source, (place, rule))

    def headers_of(self, path: str) -> dict[str, str]:
        """The headers for a decoded path, by name as first written; values of one name are joined by a comma."""
        found: dict[str, tuple[str, list[str]]] = {}
        for pattern, headers in self._headers:
            if pattern.fits(path):
                for name, value in headers:
                    found.setdefault(name.lower(), (name, []))[1].append(value)
        return {name: ", ".join(values) for name, values in found.values()}

    def redirect_of(self, path: str) -> tuple[str, int] | None:
        """Target (encoded as a URL) and status for a decoded path. A local target stays on the site for every path."""
        first, rule = self._plain.get(path, (len(self._plain) + len(self._dynamic), None))
        for place, pattern, dynamic in self._dynamic:
            if place > first:
                break
            match = pattern.fullmatch(path)
            if match:
                return _filled(dynamic.target, match.groupdict()), dynamic.status
        return (_filled(rule.target, {}), rule.status) if rule else None


class _HeaderPath:
    """A path of `_headers`. What follows a `*` in its middle has a fixed number of segments, so it fits at one place.

    One pattern would be tried at each character after the `*`: with many placeholders that takes a second for a path.
    """

    def __init__(self, path: str) -> None:
        before, _, after = path.partition("*")
        self._whole = None if after else _pattern(path)
        self._before, self._after = _pattern(before), _pattern(after)
        self._first, _, _ = after.partition("/")
        self._slashes = after.count("/")

    def fits(self, path: str) -> bool:
        """In linear time."""
        if self._whole is not None:
            return self._whole.fullmatch(path) is not None
        parts = path.rsplit("/", self._slashes)
        start = len(parts[0]) - len(self._first)
        if len(parts) <= self._slashes or not parts[0].endswith(self._first):
            return False
        found = self._before.match(path)
        return found is not None and found.end() <= start and self._after.fullmatch(path, start) is not None


def _pattern(path: str) -> re.Pattern[str]:
    """Placeholders are whole segments and there is one `*`, so matching takes linear time. `/a/*` fits `/a` too."""
    made = "".join(
        f"(?P<{part[1:]}>[^/]+)" if PLACEHOLDER.fullmatch(part) else re.escape(part)
        for part in re.split(r"((?<=/):[A-Za-z][A-Za-z0-9_]*)", path)
    )
    if made.endswith(r"/\*") and made != r"/\*":
        return re.compile(made[:-3] + r"(?:/(?P<splat>.*))?", re.DOTALL)
    return re.compile(made.replace(r"\*", "(?P<splat>.*)"), re.DOTALL)


def _filled(target: str, values: dict[str, str | None]) -> str:
    start = target.find("/", target.find("//") + 2) if not target.startswith("/") else 0
    host, path = (target, "") if start < 0 else (target[:start], target[start:])
    filled = PLACEHOLDER.sub(lambda found: quote(values.get(found[1]) or "", safe="/"), path)
    encoded = quote(filled, safe="/%:@!$&'()*+,;=~?#[]")
    # Two slashes at the beginning would name another host.
    return host + (re.sub(r"^/{2,}", "/", encoded) if not host else encoded)
