"""Manifest of a release: a file beside it that lists its contents, which are found again without reading them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
# Encodings by the ending of the copy's name, as Caddy's file server looks for them.
ENCODINGS = ("br", "zst", "gz")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """File of a release. `copies`: sizes of compressed copies by encoding; None if compression was not tried."""

    digest: str
    size: int
    copies: Mapping[str, int] | None = None


def manifest_bytes(files: Mapping[str, StoredFile]) -> bytes:
    """Return the content of the manifest file."""
    return json.dumps({path: as_json(file) for path, file in files.items()}, separators=(",", ":")).encode()


def read_manifest(release: Path) -> dict[str, StoredFile]:
    """Return the files of a release, by path. Raise OSError, ValueError."""
    found = json.loads((release / MANIFEST).read_bytes())
    return {path: from_json(values) for path, values in found.items()}


def as_json(file: StoredFile) -> list[Any]:
    """Return a file as JSON holds it."""
    return [file.digest, file.size, None if file.copies is None else dict(file.copies)]


def from_json(values: list[Any]) -> StoredFile:
    """Return a file from its JSON; the inverse of `as_json`."""
    digest, size, copies = values
    return StoredFile(digest, size, copies)
