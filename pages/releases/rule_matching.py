"""Matching of a release's rules with paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from pages.releases.rules import PLACEHOLDER, RedirectRule, Rules


class RuleMatcher:
    """Rules of a release, prepared once. Redirects without placeholders cost one look-up.

    Paths are compared by their segments. Patterns of `re` with hundreds of placeholders took 0.2 s to compile for one
    release; visitors of many such releases in turn would occupy all of the api's processors.
    """

    def __init__(self, rules: Rules) -> None:
        self._headers = [(_HeaderPath(rule.path), rule.headers) for rule in rules.headers]
        self._plain: dict[str, tuple[int, RedirectRule]] = {}
        self._dynamic: list[tuple[int, _RedirectPath, RedirectRule]] = []
        for place, rule in enumerate(rules.redirects):
            if rule.is_dynamic:
                self._dynamic.append((place, _RedirectPath(rule.source), rule))
            else:
                self._plain.setdefault(rule.source, (place, rule))

    def headers_of(self, path: str) -> dict[str, str]:
        """Return the headers for a decoded path, by name as first written. Values of one name are joined by a comma."""
        found: dict[str, tuple[str, list[str]]] = {}
        parts = path.split("/")
        for pattern, headers in self._headers:
            if pattern.fits(parts):
                for name, value in headers:
                    found.setdefault(name.lower(), (name, []))[1].append(value)
        return {name: ", ".join(values) for name, values in found.values()}

    def redirect_of(self, path: str) -> tuple[str, int] | None:
        """Return target (encoded as a URL) and status for a decoded path.

        A local target stays on the site for every path.
        """
        first, rule = self._plain.get(path, (len(self._plain) + len(self._dynamic), None))
        parts = path.split("/")
        for place, pattern, dynamic in self._dynamic:
            if place > first:
                break
            values = pattern.values_of(parts)
            if values is not None:
                return _filled(dynamic.target, values), dynamic.status
        return (_filled(rule.target, {}), rule.status) if rule else None


class _RedirectPath:
    """Path whose `*`, if it has one, is its last segment. `/a/*` fits `/a` too."""

    def __init__(self, path: str) -> None:
        self._has_star = path.endswith("/*")
        self._segments = path.removesuffix("/*").split("/")

    def values_of(self, parts: Sequence[str]) -> dict[str, str] | None:
        """Return the placeholders' values in the segments of a path; None if the path does not fit. In linear time."""
        count = len(self._segments)
        if len(parts) < count or (len(parts) > count and not self._has_star) or parts == [""]:
            return None
        values: dict[str, str] = {}
        for segment, part in zip(self._segments, parts, strict=False):
            if not segment.startswith(":"):
                if segment != part:
                    return None
            elif part:
                values[segment[1:]] = part
            else:
                return None
        if self._has_star:
            values["splat"] = "/".join(parts[count:])
        return values


class _HeaderPath:
    """Path of `_headers`, whose `*` may be anywhere.

    The part after `*` has a fixed number of segments, so it fits at one place.
    """

    def __init__(self, path: str) -> None:
        before, star, after = path.partition("*")
        self._whole = _RedirectPath(path) if not star or path.endswith("/*") else None
        self._segments = before.split("/")
        self._first, *self._rest = after.split("/")
        self._slashes = len(self._rest)

    def fits(self, parts: Sequence[str]) -> bool:
        """Return whether a path of these segments fits. In linear time."""
        if self._whole is not None:
            return self._whole.values_of(parts) is not None
        if len(parts) <= self._slashes or not parts[-1 - self._slashes].endswith(self._first):
            return False
        above = parts[: len(parts) - 1 - self._slashes]
        start = sum(len(part) + 1 for part in above) + len(parts[len(above)]) - len(self._first)
        end = self._end_of_before(parts)
        return end is not None and end <= start and self._fits_after(parts[len(above) + 1 :])

    def _end_of_before(self, parts: Sequence[str]) -> int | None:
        """Return the end of the beginning of a path before the `*`; None if the path does not fit."""
        *whole, last = self._segments
        if len(parts) < len(self._segments) or not parts[len(whole)].startswith(last):
            return None
        if whole and not all(map(_fits_segment, whole, parts)):
            return None
        return sum(len(part) + 1 for part in parts[: len(whole)]) + len(last)

    def _fits_after(self, parts: Sequence[str]) -> bool:
        return all(map(_fits_segment, self._rest, parts))


def _fits_segment(segment: str, part: str) -> bool:
    return bool(part) if segment.startswith(":") else segment == part


def _filled(target: str, values: dict[str, str]) -> str:
    start = target.find("/", target.find("//") + 2) if not target.startswith("/") else 0
    host, path = (target, "") if start < 0 else (target[:start], target[start:])
    filled = PLACEHOLDER.sub(lambda found: quote(values.get(found[1], ""), safe="/"), path)
    encoded = quote(filled, safe="/%:@!$&'()*+,;=~?#[]")
    # Two slashes at the beginning would name another host.
    return host + (re.sub(r"^/{2,}", "/", encoded) if not host else encoded)
