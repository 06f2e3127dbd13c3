"""Each test that docs/security.md and docs/testing.md name as the proof of a promise exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.ROOT)
each_document = pytest.mark.parametrize("document", ["security.md", "testing.md"])


def text_of(document: str) -> str:
    return (ROOT / "docs" / document).read_text()


@each_document
def test_every_named_test_exists(document: str) -> None:
    named = set(re.findall(r"`(tests/[\w/]+(?:\.py)?)", text_of(document)))
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@each_document
def test_every_named_function_is_in_its_file(document: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)", text_of(document))
    assert len(named) > 5
    assert [pair for pair in named if f"def {pair[1]}(" not in (ROOT / pair[0]).read_text()] == []
