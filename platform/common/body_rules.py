"""How many bytes a request may send, and which bodies are read piece by piece, as their views declare it.

A body is bounded before the request is routed. So the addresses of the views that declare a rule are collected from the
URL configuration once, and each request is compared with those few.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from django.conf import settings
from django.urls import URLPattern, URLResolver, get_resolver

RAW = "application/octet-stream"
# The view has a limit of its own for each request.
UNLIMITED = 1 << 62
_SAFE = ("GET", "HEAD", "OPTIONS")
_Action = TypeVar("_Action", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class BodyRule:
    """Bytes accepted in a body that is stored before its view runs, and in one that the view reads by `body_chunks`:
    without `streamed_bytes` there is none of these, and `streamed_type` is their content type, if not every one.
    """

    stored_bytes: Callable[[], int] = lambda: settings.BODY_LIMIT
    streamed_bytes: Callable[[], int] | None = None
    streamed_type: str = ""

    def is_streamed(self, content_type: str) -> bool:
        if self.streamed_bytes is None:
            return False
        return self.streamed_type in ("", media_type(content_type))

    def limit(self, content_type: str) -> int:
        if self.streamed_bytes is not None and self.is_streamed(content_type):
            return self.streamed_bytes()
        return self.stored_bytes()


USUAL = BodyRule()


def takes_body(rule: BodyRule) -> Callable[[_Action], _Action]:
    """Declare the rule of a viewset's action. A viewset itself declares one in `body_rule`, for every method that may
    have a body, served or not.
    """

    def declared(action: _Action) -> _Action:
        action.body_rule = rule  # type: ignore[attr-defined]
        return action

    return declared


def rule_of_action(view: type, action: str, method: str) -> BodyRule:
    """Return the rule for requests that this action of a viewset serves by this method."""
    found = getattr(getattr(view, action, None), "body_rule", None)
    if found is None and method not in _SAFE:
        found = getattr(view, "body_rule", None)
    return found if isinstance(found, BodyRule) else USUAL


def rule_of_request(method: str, path: str) -> BodyRule:
    addresses, views = _declared_rules(settings.ROOT_URLCONF)
    found = addresses.fullmatch(path)
    if found is None:
        return USUAL
    view, actions = views[str(found.lastgroup)]
    return rule_of_action(view, actions.get(method.lower(), ""), method)


def body_limit(method: str, path: str, content_type: str = "") -> int:
    """Return bytes accepted in a body."""
    return rule_of_request(method, path).limit(content_type)


def is_streamed(method: str, path: str, content_type: str) -> bool:
    """Return whether the view reads this body piece by piece; every other one is stored before its sender is known."""
    return rule_of_request(method, path).is_streamed(content_type)


def is_raw(content_type: str) -> bool:
    return media_type(content_type) == RAW


def media_type(content_type: str) -> str:
    return content_type.split(";", 1)[0].strip().lower()


_Views = dict[str, tuple[type, Mapping[str, str]]]


@cache
def _declared_rules(urlconf: Any) -> tuple[re.Pattern[str], _Views]:
    """Return one expression for the addresses of all views with a rule, and by the names of its groups their viewsets
    with the action of each method.
    """
    addresses: list[str] = []
    views: _Views = {}
    for address, view, actions in _viewsets(get_resolver(urlconf), ""):
        if hasattr(view, "body_rule") or any(hasattr(getattr(view, name), "body_rule") for name in actions.values()):
            name = f"view{len(views)}"
            addresses.append(f"(?P<{name}>{address})")
            views[name] = view, actions
    return re.compile("|".join(addresses) or r"(?!)"), views


def _viewsets(entry: URLResolver | URLPattern, above: str) -> Iterator[tuple[str, type, Mapping[str, str]]]:
    """Yield, for every route of viewsets, the expression of its address, its viewset, and the action of each method."""
    address = above + entry.pattern.regex.pattern.removeprefix("^")
    if isinstance(entry, URLResolver):
        for inner in entry.url_patterns:
            yield from _viewsets(inner, address)
    else:
        view: Any = entry.callback
        if actions := getattr(view, "actions", None):
            yield re.sub(r"\(\?P<\w+>", "(?:", address), view.cls, actions
