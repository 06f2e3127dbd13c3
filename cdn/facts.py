"""What was found out about a file that was uploaded. Free of Django, so that the confined process may fill it in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileFacts:
    """By its bytes. `extension` says whether text is UTF-8, too (`cdn.types.UTF8_PREFIX`). `width`, `height` (upright)
    and `duration_seconds` are None where they could not be verified.
    """

    kind: str
    content_type: str
    extension: str
    size: int
    sha256: str
    width: int | None = None
    height: int | None = None
    duration_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """A variant that lies in the store."""

    name: str
    width: int
    height: int
    size: int
    sha256: str
    content_type: str
    extension: str
