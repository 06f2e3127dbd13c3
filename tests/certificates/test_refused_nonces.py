"""A real CA that refuses many requests for no reason of theirs, as it may at any time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from certificates import orders, services
from certificates.models import AcmeAccount, Certificate
from tests.certificates.edge import CustomEdge
from tests.certificates.pebble import open_pebble, settings_with

pytestmark = pytest.mark.django_db


def test_refused_nonces_cost_time_and_no_second_order(
    custom_edge: CustomEdge, announced: Any, carry_on: Callable[..., Certificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "nonces.example.org"
    monkeypatch.setattr(orders, "_SHORTEST_POLL", 0.1)
    with (
        tempfile.TemporaryDirectory(prefix="pebble-") as folder,
        open_pebble(Path(folder), custom_edge.http_port, PEBBLE_WFE_NONCEREJECT="60") as ca,
    ):
        settings_with(monkeypatch, acme_directory=ca.directory, acme_ca_file=str(ca.authority))
        services.certificate_request([name])
        for _ in range(60):
            now = timezone.now()
            AcmeAccount.objects.update(paused_until=None)
            Certificate.objects.filter(name=name).update(due_at=now, next_attempt_at=now)
            row = carry_on(name)
            if row.chain:
                break
        assert row.chain
        assert ca.orders() == 1
