"""Links of the documents lead to files, and so do the documents that code, tests and scripts name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

from tests.test_terms import files, lines

ROOT = Path(settings.ROOT)
DOCUMENTS = [path for path in files() if path.suffix == ".md"]
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_document_lead_to_files(document: Path) -> None:
    links = [link for link in LINK.findall(document.read_text()) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_documents_that_are_named_anywhere_exist() -> None:
    named = [(place, name) for place, line in lines() for name in re.findall(r"\bdocs/[\w/-]+\.md\b", line)]
    assert len(named) > 50
    assert [(place, name) for place, name in named if not (ROOT / name).exists()] == []
