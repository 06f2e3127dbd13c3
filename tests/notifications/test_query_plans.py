"""What `push` asks each second goes by an index, however many sends of the last day there are."""

from __future__ import annotations

import pytest
from django.db import connection

from notifications.models import Send, SendState
from notifications.sends import queue
from tests.notifications.senders import Sender

pytestmark = pytest.mark.django_db


def make_ended(count: int) -> None:
    row = {"account_id": "a", "workspace_id": "w", "token_id": 1, "devices": 1, "last_device": 1, "delivered": 1}
    Send.objects.bulk_create(Send(state=SendState.ENDED, **row) for _ in range(count))  # type: ignore[misc]
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE notifications_send")


@pytest.mark.parametrize("name", ["claimable", "of an account", "overdue"])
def test_live_sends_are_found_by_their_state(sender: Sender, name: str) -> None:
    make_ended(3000)
    rows = {
        "claimable": queue.live_sends().filter(queue.LEASE.free()).order_by("created_at"),
        "of an account": queue.live_sends_of("a"),
        "overdue": queue.live_sends().filter(created_at__lt=Send().created_at),
    }[name]
    plan = rows.explain()
    assert "send_by_state" in plan or "send_in_state" in plan, plan
