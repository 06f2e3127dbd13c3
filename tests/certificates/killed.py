"""What a process does that is killed (tests/killed_process.py)."""

from __future__ import annotations

import os
import signal
import time

from django.utils import timezone

from certificates import hooks, orders
from certificates.ca import CaClient, Order
from certificates.leases import due_ids
from certificates.models import Certificate
from certificates.steps import certificate_step
from tests.killed_process import _say


def order_to_end() -> None:
    """As the dispatcher does, until nothing is due for a minute."""
    orders._SHORTEST_POLL = 0.05  # type: ignore[misc]
    # The app above has no such domain.
    hooks.dns_points_here._handlers.clear()
    last = time.monotonic() + 120
    while time.monotonic() < last:
        for key in due_ids(10):
            certificate_step(key)
        due = Certificate.objects.order_by("due_at").values_list("due_at", flat=True).first()
        if due is None or (due - timezone.now()).total_seconds() > 30:
            return
        time.sleep(0.02)


def die_before_the_address_is_stored() -> None:
    """Between the CA's answer and the statement that stores it."""
    place = CaClient.order_place

    def place_and_die(self: CaClient, name: str) -> Order:
        place(self, name)
        _say("here", os.getpid())
        signal.pause()
        raise AssertionError

    CaClient.order_place = place_and_die  # type: ignore[method-assign]
    order_to_end()
