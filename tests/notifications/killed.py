"""What a process that is killed runs (tests/killed_process.py)."""

from __future__ import annotations

import time

from notifications.process import push_providers
from notifications.sends import fanout, running
from notifications.sends.dispatcher import PushDispatcher
from notifications.sends.queue import live_sends

SECONDS = 120.0


def sends_run() -> None:
    """The passes of `push`, in this thread, until every send has ended."""
    # A send of some devices is handed out in several parts.
    running.CHUNK = fanout.CHUNK = 2
    dispatcher = PushDispatcher(4, push_providers())
    until = time.monotonic() + SECONDS
    dispatcher.wake()
    while live_sends().exists() and time.monotonic() < until:
        dispatcher.run_pass()
        time.sleep(0.01)
    dispatcher._pool.shutdown(wait=False, cancel_futures=True)
