"""A request to send: it waits for the counts, as requests wait for operations."""

from __future__ import annotations

from common.capacity import CapacityUsedUp
from common.errors import RateLimited
from notifications.content import Content
from notifications.models import Send, SendState
from notifications.sends.queue import send_create, tally_of
from notifications.sends.results import Tally
from notifications.tokens import SendTokenHolder, token_used
from workspaces.operations.waiting import wait_in_place, waiting_capacity

WAIT_SECONDS = 10.0
NO_PLACE = "Too many requests wait for an outcome; try again in a moment."


def send_and_wait(holder: SendTokenHolder, content: Content) -> tuple[int, Tally]:
    """Send to all devices of the account; how many there are, and what has come of it after WAIT_SECONDS at most.

    Raise RateLimited (no place to wait, or too many are still being sent): nothing is sent then. If the client
    goes away, the sending goes on.
    """
    try:
        with waiting_capacity().reserve(holder.account.pk):
            send = send_create(holder=holder, content=content)
            token_used(holder.token)
            if send.state != SendState.ENDED:
                wait_in_place(send.pk, WAIT_SECONDS, lambda: _ended(send))
                send = _current(send)
    except CapacityUsedUp:
        raise RateLimited(NO_PLACE, headers={"Retry-After": "1"}) from None
    return send.devices, tally_of(send)


def _ended(send: Send) -> bool | None:
    return Send.objects.filter(pk=send.pk, state=SendState.ENDED).exists() or None


def _current(send: Send) -> Send:
    return Send.objects.filter(pk=send.pk).defer("content").first() or send
