"""Facts about an uploaded file. Free of Django, so that the confined process may fill them in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts found from a file's bytes. `extension` says also whether text is UTF-8 (`cdn.types.UTF8_PREFIX`).

    `width`, `height` (upright) and `duration_seconds` are None if they could not be verified.
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
    """Facts about a variant that is in the store."""

    name: str
    width: int
    height: int
    size: int
    sha256: str
    content_type: str
    extension: str
