"""The work of the process `push`: one thread that claims and writes, and many that send and touch no database."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from common.work.dispatcher import Dispatcher
from common.work.leases import new_claim
from notifications.models import Device
from notifications.sends.attempts import Outcome, PushProvider, make_attempt
from notifications.sends.fanout import Fanout
from notifications.sends.running import RunningSends


class PushDispatcher(Dispatcher[Outcome]):
    """`providers`: by the provider of a device."""

    GATHER_SECONDS = 0.005
    # While sends are in flight, whose requests wait for counts and whose leases are to be renewed.
    WRITE_SECONDS = 0.25

    def __init__(self, threads: int, providers: Mapping[str, PushProvider]) -> None:
        super().__init__("notifications", threads)
        self._running = RunningSends(new_claim(), threads, providers)

    @property
    def is_busy(self) -> bool:
        return self._running.in_flight > 0

    def seconds_to_look(self) -> float:
        return self.WRITE_SECONDS if self.is_busy else self.LOOK_SECONDS

    def run_pass(self) -> int:
        """Count what has ended, begin what is due, write what has changed."""
        self._running.record(self.ended_work())
        if not self.is_stopping:
            if self.is_time_to_look():
                self._running.claim()
            self._running.begin(self._begin)
        self._running.write()
        return 0

    def give_back(self) -> None:
        """Leave sends that were not begun to the next process; a device without an outcome counts as not answered."""
        self._running.give_back()

    def _begin(self, provider: PushProvider, fanout: Fanout, device: Device, pause_name: str) -> None:
        self.begin(partial(make_attempt, provider, fanout, device, pause_name))
