"""Samples of machines on which an operation is being carried out.

The hypervisor answers for such a machine when it has started or ended its process, which may take seconds. So each is
asked for by a call of its own, in a thread: it delays neither the sampler nor another machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait

from vmbackend.driver import Driver
from vmbackend.errors import BackendError
from vmbackend.samples import Sample

logger = logging.getLogger(__name__)

THREADS = 8
WAIT_SECONDS = 0.2  # for the answers of a round; later ones are returned by a later round


class BusyMachines:
    """Samples of machines that answer slowly, for one host; used by one thread. `monotonic` is the sampler's clock."""

    def __init__(self, driver: Driver, monotonic: Callable[[], float]) -> None:
        self._driver = driver
        self._monotonic = monotonic
        self._asked: dict[str, tuple[float, Future[Sample | None]]] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="busy-machines")

    def samples(self, machine_ids: Collection[str]) -> dict[str, tuple[float, Sample]]:
        """Ask for these machines, except those whose last answer is still missing. Return the answers that have
        arrived, also to an earlier round: the time of the asking, and the sample.
        """
        new = []
        for key in machine_ids:
            if key not in self._asked:
                new.append(self._pool.submit(self._ask, key))
                self._asked[key] = self._monotonic(), new[-1]
        wait(new, WAIT_SECONDS)
        arrived = {key: self._asked.pop(key) for key, (_, call) in list(self._asked.items()) if call.done()}
        return {key: (at, sample) for key, (at, call) in arrived.items() if (sample := call.result()) is not None}

    def stop(self) -> None:
        """Ask for nothing more; a call in progress ends at the driver's deadline."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, key: str) -> Sample | None:
        try:
            return self._driver.samples([key]).get(key)
        except BackendError:
            return None  # it is being started or ended: the next round asks again
        except Exception:
            logger.exception("no sample could be taken of %s", key)
            return None
