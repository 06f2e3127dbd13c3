"""The name server that the platform asks, and targets of domains."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings

from domains import publication
from edge.domain_files import DomainFiles
from tests.domains.zone import EDGE, EDGE_ADDRESS, Zone, open_zone


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Change settings of the platform for a test."""

    def change(**values: Any) -> None:
        monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update=values))

    return change


@pytest.fixture(scope="session")
def name_server() -> Iterator[tuple[Zone, str]]:
    made = Zone()
    with open_zone(made) as place:
        yield made, place


@pytest.fixture
def zone(env: Any, name_server: tuple[Zone, str]) -> Zone:
    made, place = name_server
    made.forget()
    env(dns_resolvers=(place,), edge_host=EDGE, edge_addresses=(EDGE_ADDRESS,))
    return made


@pytest.fixture
def files() -> Iterator[DomainFiles]:
    publication._files.cache_clear()
    yield publication.domain_files()
    shutil.rmtree(publication.domain_files().root, ignore_errors=True)
    publication._files.cache_clear()
