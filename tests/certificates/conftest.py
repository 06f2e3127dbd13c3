"""A CA, and an edge that shows its tokens, for all tests of a process; steps are carried out in the test itself."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from certificates import hooks
from certificates.leases import due_ids
from certificates.models import Certificate
from certificates.steps import certificate_step
from tests.certificates.edge import CustomEdge, open_custom_edge
from tests.certificates.pebble import Pebble, open_pebble, settings_with


@pytest.fixture(scope="session")
def custom_edge() -> Iterator[CustomEdge]:
    with open_custom_edge() as edge:
        yield edge


@pytest.fixture(scope="session")
def running_ca(custom_edge: CustomEdge) -> Iterator[Pebble]:
    with (
        tempfile.TemporaryDirectory(prefix="pebble-") as folder,
        open_pebble(Path(folder), custom_edge.http_port) as ca,
    ):
        yield ca


@pytest.fixture
def ca(running_ca: Pebble, monkeypatch: pytest.MonkeyPatch) -> Pebble:
    """The platform's settings name this CA."""
    settings_with(monkeypatch, acme_directory=running_ca.directory, acme_ca_file=str(running_ca.authority))
    return running_ca


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What the app above was informed of."""
    said: list[tuple[str, bool]] = []
    monkeypatch.setattr(hooks.certificate_changed, "_handlers", [lambda name, present: said.append((name, present))])
    monkeypatch.setattr(hooks.dns_points_here, "_handlers", [])
    return said


@pytest.fixture
def carry_on(announced: Any) -> Callable[..., Certificate]:
    """Carry out what is due of a name until this is true, or nothing is due for a minute; returns the row."""

    def until(name: str, done: Callable[[Certificate], bool] = lambda row: bool(row.chain)) -> Certificate:
        last = time.monotonic() + 120
        while time.monotonic() < last:
            for key in due_ids(10):
                certificate_step(key)
            row = Certificate.objects.get(name=name)
            if done(row) or (row.due_at - timezone.now()).total_seconds() > 30:
                return row
            time.sleep(0.05)
        raise AssertionError(f"{row.status} {row.error}")

    return until
