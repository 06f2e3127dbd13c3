"""Each test that docs/security.md names as the proof of a promise exists."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.ROOT)
TEXT = (ROOT / "docs/security.md").read_text()


def test_every_named_test_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+(?:\.py)?)", TEXT))
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_named_function_is_in_its_file() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)", TEXT)
    assert [pair for pair in named if f"def {pair[1]}(" not in (ROOT / pair[0]).read_text()] == []
