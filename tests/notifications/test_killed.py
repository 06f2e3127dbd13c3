"""`push` is killed at each statement of a fan-out: all is counted, and no device gets a notification twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from itertools import count

import pytest
from django.utils import timezone

from common.work.leases import ClaimLost
from notifications.content import Content
from notifications.models import Send, SendState
from notifications.sends import queue
from notifications.sends.dispatcher import PushDispatcher
from notifications.sends.queue import end_overdue_sends, send_create
from notifications.sends.results import DEADLINE
from notifications.tokens import SendTokenHolder
from tests.killed_process import killed_process
from tests.notifications.browsers import PushService
from tests.notifications.rows import fcm_device, web_device
from tests.notifications.senders import Sender
from tests.run_extent import campaign_after
from tests.threads import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
DEVICES = 5


def begun_send(sender: Sender, title: str = "t") -> Send:
    return send_create(holder=SendTokenHolder(sender.token), content=Content(title, "b", {}))


@pytest.mark.parametrize("stride", campaign_after(1, [3, 1]))
def test_push_may_be_killed_at_any_statement(
    stride: int, sender: Sender, browsers: PushService, pushing: Callable[..., AbstractContextManager[PushDispatcher]]
) -> None:
    for number in range(DEVICES):
        web_device(sender.account, f"d{number}", browsers.subscriber(f"d{number}"))
    lost = []
    with killed_process() as process:
        for statement in count(1, stride):
            # What a process sent before it was killed may be read after the next send has begun.
            title = f"at {statement}"
            send = begun_send(sender, title)
            killed = process.killed_at(statement, "tests.notifications.killed.sends_run")
            Send.objects.filter(pk=send.pk).exclude(lease_until=None).update(lease_until=timezone.now())
            with pushing(threads=4):
                wait_until(lambda key=send.pk: Send.objects.get(pk=key).state == SendState.ENDED)  # type: ignore[misc]
            send.refresh_from_db()
            assert send.delivered + send.failed == DEVICES
            ours = [[one for one in found if one["title"] == title] for found in browsers.arrived.values()]
            arrived = [len(found) for found in ours if found]
            assert all(each == 1 for each in arrived), "none gets it twice"
            assert send.delivered <= len(arrived)
            # What was begun and not heard of, at most two parts.
            assert DEVICES - len(arrived) <= 4
            assert {group["code"] for group in send.errors} <= {DEADLINE}
            lost.append(send.failed)
            if not killed:
                break
    assert lost[-1] == 0
    assert max(lost) > 0, "a kill between handing out and the write of what came of it costs its part"


def test_a_process_that_stops_leaves_what_it_has_not_begun(
    sender: Sender, browsers: PushService, pushing: Callable[..., AbstractContextManager[PushDispatcher]]
) -> None:
    for number in range(40):
        web_device(sender.account, f"d{number}", browsers.subscriber(f"d{number}", "slow"))
    send = begun_send(sender)
    with pushing(threads=4):
        wait_until(lambda: browsers.requests["slow"] > 4)
    send.refresh_from_db()
    assert (send.state, send.begun < 40) == (SendState.QUEUED, True)
    with pushing(threads=16):
        wait_until(lambda: Send.objects.get().state == SendState.ENDED)
    send.refresh_from_db()
    assert (send.delivered, send.failed) == (40, 0)
    assert [len(found) for found in browsers.arrived.values()] == [1] * 40


def test_without_the_process_a_send_ends_by_itself(sender: Sender) -> None:
    fcm_device(sender.account, "phone")
    send = begun_send(sender)
    assert end_overdue_sends() == 0
    Send.objects.update(created_at=timezone.now() - queue.OVERDUE - timedelta(seconds=1))
    assert [end_overdue_sends(), end_overdue_sends()] == [1, 0]
    send.refresh_from_db()
    assert (send.state, send.content, send.failed) == (SendState.ENDED, None, 1)
    Send.objects.update(ended_at=timezone.now() - queue.KEPT - timedelta(seconds=1))
    assert queue.prune_ended_sends() == 1


def test_a_send_of_before_the_clock_was_set_back_ends(sender: Sender) -> None:
    fcm_device(sender.account, "phone")
    begun_send(sender)
    future = timezone.now() + timedelta(days=1)
    Send.objects.update(created_at=future, state=SendState.RUNNING, claim="x", lease_until=future)
    assert end_overdue_sends() == 1


def test_two_processes_never_have_one_send(sender: Sender) -> None:
    for number in range(3):
        fcm_device(sender.account, f"phone{number}")
    send = begun_send(sender)
    (first,) = queue.claim_sends("first", {}, 10)
    assert queue.claim_sends("second", {}, 10) == []
    assert len(queue.devices_hand_out(first, 2)) == 2
    Send.objects.update(lease_until=timezone.now())
    (second,) = queue.claim_sends("second", {}, 10)
    with pytest.raises(ClaimLost):
        queue.devices_hand_out(first, 2)
    assert len(queue.devices_hand_out(second, 2)) == 1
    assert queue.devices_hand_out(second, 2) == []
    send.refresh_from_db()
    assert (send.claim, send.begun) == ("second", 3)
