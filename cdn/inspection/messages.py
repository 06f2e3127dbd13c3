"""What the confined process is asked and answers. Free of Django; both sides read it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

# Of a picture, all its frames together, unless the policy allows less.
PIXELS_MAX = 50_000_000
FRAMES_MAX = 60
# Reasons why a file could not be looked at to its end.
DAMAGED, UNSUPPORTED, PIXELS, FRAMES, LIMITS, RESOURCES = (
    "damaged",
    "unsupported",
    "pixels",
    "frames",
    "limits",
    "resources",
)


@dataclass(frozen=True, slots=True)
class VariantOrder:
    """A variant to make, on a descriptor that is open for writing. `format`: a key of `cdn.types.VARIANT_FORMATS`."""

    descriptor: int
    width: int | None
    height: int | None
    fit: str
    format: str
    quality: int | None


@dataclass(frozen=True, slots=True)
class InspectionOrder:
    """`content_type`: the sniffed one. `max_width`, `max_height`: no pixel of a larger picture is decoded.

    `to_the_end`: a duration is wanted that no header can forge.
    """

    content_type: str
    max_width: int | None = None
    max_height: int | None = None
    to_the_end: bool = False
    variants: tuple[VariantOrder, ...] = ()

    def dumped(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class MadeVariant:
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Found:
    """What was found out. `reason`: why not everything was, then the numbers are what the header claims.

    `content_type`: as the streams say, where that differs from the sniffed type.
    """

    content_type: str
    width: int | None = None
    height: int | None = None
    frames: int | None = None
    duration_seconds: float | None = None
    variants: tuple[MadeVariant, ...] = ()
    reason: str = ""

    def dumped(self) -> str:
        return json.dumps(asdict(self))


def order_of(text: str) -> InspectionOrder:
    """The order of one line of JSON."""
    given = json.loads(text)
    return InspectionOrder(**{**given, "variants": tuple(VariantOrder(**entry) for entry in given["variants"])})


def found_of(answer: Any) -> Found:
    """A checked answer: the process has read hostile bytes, and may be theirs. Raises ValueError."""
    if not isinstance(answer, dict) or set(answer) != set(Found.__slots__):
        raise ValueError("no answer")
    variants = answer["variants"]
    if not isinstance(variants, list) or not all(isinstance(entry, dict) for entry in variants):
        raise ValueError("no variants")
    return Found(
        content_type=_text(answer["content_type"]),
        width=_number(answer["width"]),
        height=_number(answer["height"]),
        frames=_number(answer["frames"]),
        duration_seconds=_duration(answer["duration_seconds"]),
        variants=tuple(MadeVariant(_side(entry.get("width")), _side(entry.get("height"))) for entry in variants),
        reason=_text(answer["reason"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 100:
        raise ValueError("no text")
    return value


def _number(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError("no number")
    return value


def _side(value: object) -> int:
    number = _number(value)
    if not number:
        raise ValueError("no length of a side")
    return number


def _duration(value: object) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= (number := float(value)) < 1 << 40:
        raise ValueError("no duration")
    return number
