"""Which rules of a release fit a path, and what they say."""

from __future__ import annotations

import re
from urllib.parse import quote

from pages.releases.rules import PLACEHOLDER, RedirectRule, Rules


class RuleMatcher:
    """The rules of a release, made ready once. Redirects without placeholders cost one look-up."""

    def __init__(self, rules: Rules) -> None:
        self._headers = [(_ending(rule.path), _pattern(rule.path), rule.headers) for rule in rules.headers]
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
        for ending, pattern, headers in self._headers:
            if path.endswith(ending) and pattern.fullmatch(path):
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


def _pattern(path: str) -> re.Pattern[str]:
    """Placeholders are whole segments and there is one `*`, so matching takes linear time. `/a/*` fits `/a` too."""
    made = "".join(
        f"(?P<{part[1:]}>[^/]+)" if PLACEHOLDER.fullmatch(part) else re.escape(part)
        for part in re.split(r"((?<=/):[A-Za-z][A-Za-z0-9_]*)", path)
    )
    if made.endswith(r"/\*") and made != r"/\*":
        return re.compile(made[:-3] + r"(?:/(?P<splat>.*))?", re.DOTALL)
    return re.compile(made.replace(r"\*", "(?P<splat>.*)"), re.DOTALL)


def _ending(path: str) -> str:
    """What every fitting path ends with. A pattern alone would look for it at each character after its `*`."""
    rest = re.split(r"\*|(?<=/):[A-Za-z][A-Za-z0-9_]*", path)[-1]
    return "" if rest == path or path.endswith("/*") else rest


def _filled(target: str, values: dict[str, str | None]) -> str:
    start = target.find("/", target.find("//") + 2) if not target.startswith("/") else 0
    host, path = (target, "") if start < 0 else (target[:start], target[start:])
    filled = PLACEHOLDER.sub(lambda found: quote(values.get(found[1]) or "", safe="/"), path)
    encoded = quote(filled, safe="/%:@!$&'()*+,;=~?#[]")
    # Two slashes at the beginning would name another host.
    return host + (re.sub(r"^/{2,}", "/", encoded) if not host else encoded)
