"""The catalog as a migration makes it; a transactional test flushes the tables, and with them its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workspaces.images.seed import seed
from workspaces.images.services import catalog_entry_save
from workspaces.models import CatalogEntry


@pytest.fixture
def catalog(db: None) -> None:
    seed(CatalogEntry)


@pytest.fixture
def entry(db: None) -> Callable[..., CatalogEntry]:
    """Make an entry as staff would."""

    def make(name: str = "own", **fields: Any) -> CatalogEntry:
        usual = {"label": "Own", "desc": "One of ours.", "category": "os", "image": f"registry.test/{name}:1"}
        made = CatalogEntry(**{"id": name, "os_distribution": "debian", "os_version": "12", **usual, **fields})
        made.full_clean()
        return catalog_entry_save(entry=made)

    return make
