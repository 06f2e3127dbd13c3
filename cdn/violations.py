"""Checks of one file against the values of a policy. `details` of each error: rule, limit, actual."""

from __future__ import annotations

from typing import Any

from cdn.errors import CdnPolicyViolation
from cdn.facts import FileFacts
from cdn.policy_rules import allowed_kinds
from cdn.states import Kind

PICTURES = (Kind.IMAGE, Kind.VIDEO)
TIMED = (Kind.VIDEO, Kind.AUDIO)


def require_file(values: dict[str, Any], tier: str, *, kind: str | None, size: int, variants: int) -> None:
    """Kind, size and number of variants. `kind` None: it is not known yet, and the largest size counts."""
    if kind is not None:
        _require_kind(values, tier, kind)
    most = _most_bytes(values, tier, kind)
    if most is not None and size > most:
        raise _violation("maxFileBytes", most, size, f"A file of {size} bytes is larger than the {most} allowed.")
    _require_most("maxVariants", values, variants, "variants")


def require_found(values: dict[str, Any], facts: FileFacts) -> None:
    """Dimensions and duration, where the kind has them. What could not be verified is refused where it has a limit."""
    if facts.kind in PICTURES:
        _require_measured("maxWidth", values, facts.width, "pixels of width")
        _require_measured("maxHeight", values, facts.height, "pixels of height")
    if facts.kind in TIMED:
        _require_measured("maxDurationSeconds", values, facts.duration_seconds, "seconds")


def _require_kind(values: dict[str, Any], tier: str, kind: str) -> None:
    allowed = allowed_kinds(values, tier)
    if allowed is None or kind in allowed:
        return
    listed = values["allowedKinds"]
    rule = "allowedKinds" if listed is not None and kind not in listed else "tierMediaAccess"
    raise _violation(rule, allowed, kind, f"Files of the kind {kind} are not allowed; allowed: {_list(allowed)}.")


def _most_bytes(values: dict[str, Any], tier: str, kind: str | None) -> int | None:
    by_kind = values["maxFileBytes"] or {}
    if kind is not None:
        most: int | None = by_kind.get(kind)
        return most
    allowed = allowed_kinds(values, tier)
    kinds = [each.value for each in Kind] if allowed is None else allowed
    limits = [by_kind.get(each) for each in kinds]
    return None if None in limits else max((each for each in limits if each is not None), default=None)


def _require_measured(rule: str, values: dict[str, Any], actual: float | None, unit: str) -> None:
    if values[rule] is not None and actual is None:
        raise _violation(rule, values[rule], None, f"{rule} is {values[rule]}, and the file cannot be measured.")
    _require_most(rule, values, actual or 0, unit)


def _require_most(rule: str, values: dict[str, Any], actual: float, unit: str) -> None:
    limit = values[rule]
    if limit is not None and actual > limit:
        raise _violation(rule, limit, actual, f"{actual} {unit} are more than the {limit} allowed.")


def _violation(rule: str, limit: Any, actual: Any, message: str) -> CdnPolicyViolation:
    return CdnPolicyViolation(message, details={"rule": rule, "limit": limit, "actual": actual})


def _list(kinds: list[str]) -> str:
    return ", ".join(kinds) or "none"
