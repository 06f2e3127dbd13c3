"""How values of a policy are chosen and clamped to a ceiling. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

NUMBERS = (
    "maxTotalBytes",
    "monthlyUploadBytes",
    "maxFiles",
    "maxConcurrentUploads",
    "maxWidth",
    "maxHeight",
    "maxDurationSeconds",
    "maxVariants",
)


class HasValues(Protocol):
    """Limits by name."""

    def value(self, name: str) -> Any:
        """None where it states none."""


LayerT = TypeVar("LayerT", bound=HasValues)


def first_given(layers: Iterable[LayerT], name: str) -> LayerT | None:
    """The first that states the field. Zero and an empty list are values; null is none."""
    return next((layer for layer in layers if layer.value(name) is not None), None)


def clamped_value(name: str, value: Any, ceiling: Any) -> Any:
    """No more than the ceiling; None: neither states a limit."""
    if value is None or ceiling is None:
        return ceiling if value is None else value
    if name == "allowedKinds":
        return kinds_in_both(value, ceiling)
    if name == "maxFileBytes":
        return {kind: _least(value.get(kind), ceiling.get(kind)) for kind in {**ceiling, **value}}
    if name == "tierMediaAccess":
        return {tier: _kinds(value.get(tier), ceiling.get(tier)) for tier in {**ceiling, **value}}
    return min(value, ceiling)


def kinds_in_both(kinds: list[str], others: list[str]) -> list[str]:
    """In the order of the first."""
    return [kind for kind in kinds if kind in others]


def allowed_kinds(values: dict[str, Any], tier: str) -> list[str] | None:
    """What an account of this tier may store; None: every kind."""
    access = (values["tierMediaAccess"] or {}).get(tier)
    return _kinds(values["allowedKinds"], access)


def _least(one: int | None, other: int | None) -> int | None:
    given = [each for each in (one, other) if each is not None]
    return min(given) if given else None


def _kinds(one: list[str] | None, other: list[str] | None) -> list[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return kinds_in_both(one, other)
