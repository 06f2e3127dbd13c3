"""The initial entries of an installation (`catalog.json`). Staff edit them as rows afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vmbackend.images.reference import parse_reference

CATALOG = Path(__file__).with_name("catalog.json")


def seed_rows() -> list[dict[str, Any]]:
    """Return the columns of each entry; positions follow the order of the file, with gaps."""
    entries: list[dict[str, Any]] = json.loads(CATALOG.read_text())
    return [
        {**entry, "position": (number + 1) * 10, "reference": parse_reference(entry["image"]).tagged}
        for number, entry in enumerate(entries)
    ]


def seed(model: Any) -> None:
    """Create the missing entries; `model` is CatalogEntry, or its historical form in a migration."""
    known = {field.name for field in model._meta.concrete_fields}
    entries = ({name: value for name, value in row.items() if name in known} for row in seed_rows())
    model.objects.bulk_create([model(**entry) for entry in entries], ignore_conflicts=True)
