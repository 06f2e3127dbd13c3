"""Meaning of the inspection's answer: facts of the row, and refusals if a required fact could not be verified."""

from __future__ import annotations

from typing import Any

from cdn.errors import CdnPolicyViolation
from cdn.facts import FileFacts
from cdn.inspection.formats import PICTURES
from cdn.inspection.messages import DAMAGED, FRAMES, FRAMES_MAX, LIMITS, PIXELS, PIXELS_MAX, RESOURCES, Findings
from cdn.policy import EffectivePolicy
from cdn.services.processing import ClaimedFile
from cdn.types import IMAGE, UTF8_PREFIX, file_type

_SENTENCES = {
    DAMAGED: "The file is damaged or incomplete",
    RESOURCES: "Inspecting the file takes too much time or memory",
}


def facts_of(claimed: ClaimedFile, found: Findings, *, is_utf8: bool) -> FileFacts:
    """Return the facts. Numbers of a header that nothing confirms are left out; those that break a limit stay, to be
    named.
    """
    known = file_type(found.content_type)
    verified = found.reason in ("", LIMITS)
    return FileFacts(
        kind=known.kind,
        content_type=known.content_type,
        extension=f"{UTF8_PREFIX}{known.extension}" if is_utf8 else known.extension,
        size=claimed.received,
        sha256=claimed.sha256,
        width=found.width if verified else None,
        height=found.height if verified else None,
        duration_seconds=found.duration_seconds if verified else None,
    )


def require_verified(claimed: ClaimedFile, found: Findings, policy: EffectivePolicy) -> None:
    """Raise CdnPolicyViolation if a limit or a variant needs a fact that was not found."""
    is_limited = file_type(found.content_type).kind == IMAGE and any(
        policy.values[rule] is not None for rule in ("maxWidth", "maxHeight")
    )
    if claimed.variants_wanted or is_limited:
        _require_decodable(found)
    if claimed.variants_wanted:
        _require_picture(found)


def _require_decodable(found: Findings) -> None:
    if found.reason == PIXELS:
        pixels = (found.width or 0) * (found.height or 0) * (found.frames or 1)
        raise _violation("pixels", PIXELS_MAX, pixels, f"Pictures of more than {PIXELS_MAX} pixels are not decoded.")
    if found.reason == FRAMES:
        raise _violation(
            "frames", FRAMES_MAX, found.frames, f"Pictures of more than {FRAMES_MAX} frames are not decoded."
        )


def _require_picture(found: Findings) -> None:
    if found.content_type not in PICTURES:
        types = sorted(PICTURES)
        message = f"Variants can be made of {', '.join(types)} only, and the file is {found.content_type}."
        raise _violation("variants", types, found.content_type, message)
    if found.reason and found.reason != LIMITS:
        sentence = _SENTENCES.get(found.reason, "The file cannot be decoded")
        raise _violation("variants", "decodable", found.reason, f"{sentence}: its variants cannot be made.")


def _violation(rule: str, limit: Any, actual: Any, message: str) -> CdnPolicyViolation:
    return CdnPolicyViolation(message, details={"rule": rule, "limit": limit, "actual": actual})
