"""Messages to and from the confined process. Free of Django; both sides read this.

They are tuples with names: dataclasses would take a tenth of the time in which a thumbnail is made.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

# Limits of a picture, all its frames together, unless the policy allows less.
PIXELS_MAX = 50_000_000
FRAMES_MAX = 60
# Reasons why a file could not be inspected to its end.
DAMAGED, UNSUPPORTED, PIXELS, FRAMES, LIMITS, RESOURCES = REASONS = (
    "damaged",
    "unsupported",
    "pixels",
    "frames",
    "limits",
    "resources",
)
# The first line of the answer: from here on, failures are caused by the file.
READY = "ready"


class VariantOrder(NamedTuple):
    """Order for a variant, written to an open descriptor. `format`: a key of `cdn.types.VARIANT_FORMATS`."""

    descriptor: int
    width: int | None
    height: int | None
    fit: str
    format: str
    quality: int | None


class InspectionOrder(NamedTuple):
    """Order to inspect a file. `content_type`: the sniffed type.

    `max_width`, `max_height`: no pixel of a larger picture is decoded. `to_the_end`: a duration is wanted that no
    header can forge.
    """

    content_type: str
    max_width: int | None = None
    max_height: int | None = None
    to_the_end: bool = False
    variants: tuple[VariantOrder, ...] = ()

    def allows(self, width: int, height: int) -> bool:
        """Return whether a picture of this size may be decoded."""
        is_wide = self.max_width is not None and width > self.max_width
        return not is_wide and (self.max_height is None or height <= self.max_height)


class MadeVariant(NamedTuple):
    """Size of a variant that was written."""

    width: int
    height: int


class Findings(NamedTuple):
    """Findings of an inspection.

    `reason`: why not everything was found; then the numbers are only those of the header. `content_type`: the type by
    the streams, if it differs from the sniffed type.
    """

    content_type: str
    width: int | None = None
    height: int | None = None
    frames: int | None = None
    duration_seconds: float | None = None
    variants: tuple[MadeVariant, ...] = ()
    reason: str = ""


def order_dumped(order: InspectionOrder) -> str:
    """Return the order in JSON."""
    return json.dumps(order)


def order_of(text: str) -> InspectionOrder:
    """Return the order from the JSON of `order_dumped`."""
    content_type, max_width, max_height, to_the_end, variants = json.loads(text)
    orders = tuple(VariantOrder(*entry) for entry in variants)
    return InspectionOrder(content_type, max_width, max_height, to_the_end, orders)


def found_dumped(found: Findings) -> str:
    """Return the answer in JSON."""
    return json.dumps(found)


def found_of(text: bytes) -> Findings:
    """Return a checked answer. The process has read hostile bytes, and may be controlled by them. Raise ValueError."""
    answer = json.loads(text)
    if not isinstance(answer, list) or len(answer) != len(Findings._fields) or not isinstance(answer[5], list):
        raise ValueError("no answer")
    content_type, width, height, frames, duration, variants, reason = answer
    if reason and reason not in REASONS:
        raise ValueError("no reason")
    return Findings(
        _text(content_type),
        _number(width),
        _number(height),
        _number(frames),
        _duration(duration),
        tuple(_made(entry) for entry in variants),
        _text(reason),
    )


def _made(entry: Any) -> MadeVariant:
    if not isinstance(entry, list) or len(entry) != 2:
        raise ValueError("no variant")
    width, height = _number(entry[0]), _number(entry[1])
    if not width or not height:
        raise ValueError("no size of a variant")
    return MadeVariant(width, height)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 100:
        raise ValueError("no text")
    return value


def _number(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise ValueError("no number")
    return value


def _duration(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1 << 40:
        raise ValueError("no duration")
    return float(value)
