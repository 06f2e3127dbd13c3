"""The keeper of a host's warm pool: a thread that makes machines in demand, one at a time, and removes the others.

Everything that it decides from is in the database and at the hypervisor, so the next process goes on from there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.utils import timezone

from common.work.leases import new_claim
from vmbackend.backend import kit_version
from vmbackend.driver import Driver, MachineState
from vmbackend.errors import BackendError
from vmbackend.host_load import cpu_ticks, was_quiet
from vmbackend.images.reference import parse_reference
from vmbackend.services import record_host_pool
from workspaces import warm_machines
from workspaces.host.pool.demand import Demand, PoolShare, recent_demand, share_pool
from workspaces.host.pool.digests import TagDigests
from workspaces.host.pool.making import make_machine, reserve_machine, retire_failed
from workspaces.host.pool.removal import remove_retired
from workspaces.models import WarmMachine
from workspaces.models.warm_machine import WarmState
from workspaces.warm_machines import PoolShape

if TYPE_CHECKING:
    from vmbackend.images.store import ImageStore

logger = logging.getLogger(__name__)

ROUND_SECONDS = 2.0
# A host that is never quiet makes a machine all the same after this time.
BUSY_SECONDS = 60.0
FAILED_SECONDS = 60.0
LONGEST_LIFE = timedelta(hours=1)


class QuietHost:
    """Whether the host had little to do since the last look."""

    def __init__(self) -> None:
        self._ticks = cpu_ticks()

    def __call__(self) -> bool:
        before, self._ticks = self._ticks, cpu_ticks()
        return was_quiet(before, self._ticks)


class PoolKeeper:
    """A thread of vmhost from `start` to `stop`; nothing if the settings allow no pool. `run_once` is one round.

    `is_short`: whether the host's disk is nearly full. `is_quiet`: whether the host had little to do lately.
    """

    def __init__(
        self,
        host_id: str,
        driver: Driver,
        images: ImageStore,
        *,
        is_short: Callable[[], bool],
        is_quiet: Callable[[], bool] | None = None,
    ) -> None:
        self._host_id, self._driver = host_id, driver
        self._is_short = is_short
        self._is_quiet = is_quiet or QuietHost()
        self._claim = new_claim()
        self._not_before: dict[PoolShape, float] = {}
        self._waits_since: float | None = None
        self._shown: list[PoolShare] | None = None
        self._ended = threading.Event()
        self._digests = TagDigests(images, self._ended.is_set)
        self._thread = threading.Thread(target=self._work, name="warm-pool", daemon=True)

    def start(self) -> None:
        """Remove what a dead process has left, then keep the pool."""
        self.check_machines()
        if warm_machines.is_pool_on():
            self._thread.start()
        else:
            self.empty_pool()

    def stop(self) -> None:
        """End the thread. A machine that is being made is left to the next process, which removes it."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def empty_pool(self) -> None:
        """Remove every machine that nobody has claimed."""
        warm_machines.retire_machines(self._host_id)
        remove_retired(self._driver, self._host_id)

    def check_machines(self) -> None:
        """Retire machines that are not as the pool left them, that are old or of another kit, and remove what is
        retired.

        No round goes on now, so that those being made were left by a dead process, or by a round that failed.
        """
        kit, oldest = kit_version(), timezone.now() - LONGEST_LIFE
        for machine in self._machines():
            is_current = machine.kit == kit and machine.made_at > oldest
            if machine.state == WarmState.MAKING or not is_current or not self._is_paused(machine.pk):
                warm_machines.retire_machine(machine.pk)
        remove_retired(self._driver, self._host_id)

    def note_digest(self, image: str, digest: str) -> None:
        """Note which digest a create was answered for a tag. No create gets a machine of another one from here on."""
        if not warm_machines.is_pool_on():
            return
        reference = str(parse_reference(image))
        # First: a machine that is reserved after the rows were looked for is compared with it.
        self._digests.note_digest(reference, digest)
        warm_machines.retire_others(self._host_id, reference, digest)

    def run_once(self) -> None:
        """Make one round: check, resolve tags, retire, make at most one machine, report."""
        is_quiet = self._is_quiet()
        self.check_machines()
        demand = {} if self._is_short() else recent_demand(self._host_id)
        wanted = share_pool(demand, settings.ENV.pool_memory_mb, settings.ENV.pool_machines)
        self._resolve(wanted)
        self._retire_unwanted(wanted)
        self._report(demand, wanted)
        missing = [shape for shape in wanted if self._count(shape) < wanted[shape] and self._is_due(shape)]
        if missing and self._may_work(is_quiet):
            self._make(missing[0])
            self._report(demand, wanted)
        elif not missing:
            self._waits_since = None

    def _machines(self) -> list[WarmMachine]:
        held = WarmMachine.objects.filter(host_id=self._host_id).exclude(state=WarmState.RETIRING)
        return list(held.order_by("made_at"))

    def _is_paused(self, key: str) -> bool:
        return self._driver.state(key) is MachineState.PAUSED

    def _count(self, shape: PoolShape) -> int:
        held = WarmMachine.objects.filter(host_id=self._host_id, **shape._asdict())
        return held.exclude(state=WarmState.RETIRING).count()

    def _digest(self, shape: PoolShape) -> str:
        return self._digests.digest(shape.image)

    def _is_due(self, shape: PoolShape) -> bool:
        return bool(self._digest(shape)) and self._not_before.get(shape, 0.0) <= time.monotonic()

    def _may_work(self, is_quiet: bool) -> bool:
        """Return whether the host is quiet, or was not for so long that a machine is made all the same."""
        if self._waits_since is None:
            self._waits_since = time.monotonic()
        return is_quiet or time.monotonic() - self._waits_since > BUSY_SECONDS

    def _resolve(self, wanted: dict[PoolShape, int]) -> None:
        """Look which digests the tags have of which machines are wanted. Machines of one that is not known become
        stale.
        """
        for image, digest in self._digests.refresh({shape.image for shape in wanted if wanted[shape]}).items():
            warm_machines.record_digest(self._host_id, image, digest)

    def _retire_unwanted(self, wanted: dict[PoolShape, int]) -> None:
        """Retire machines of another digest, and those beyond the number that is wanted."""
        machines = self._machines()
        if not machines:
            return
        kept = dict.fromkeys(wanted, 0)
        for machine in reversed(machines):
            shape = PoolShape(*(getattr(machine, name) for name in PoolShape._fields))
            digest = self._digest(shape) or machine.image_digest
            if machine.image_digest == digest and kept.get(shape, 0) < wanted.get(shape, 0):
                kept[shape] += 1
            else:
                warm_machines.retire_machine(machine.pk)
        remove_retired(self._driver, self._host_id)

    def _make(self, shape: PoolShape) -> None:
        self._waits_since = None
        self._not_before[shape] = time.monotonic() + FAILED_SECONDS  # whatever fails from here on
        found = {"digest": self._digest(shape), "kit": kit_version(), "claim": self._claim}
        machine = reserve_machine(self._host_id, shape, **found)
        if machine is None:
            return
        try:
            if self._digest(shape) == machine.image_digest:
                make_machine(self._driver, machine)
            else:
                warm_machines.retire_machine(machine.pk)  # the tag was resolved anew meanwhile
            del self._not_before[shape]
        except BackendError as exc:
            retire_failed(machine, exc)
        remove_retired(self._driver, self._host_id)

    def _report(self, demand: dict[PoolShape, Demand], wanted: dict[PoolShape, int]) -> None:
        ready = [shape for shape in wanted for _ in range(self._ready(shape))]
        shares = [
            PoolShare(*shape, wanted[shape], ready.count(shape), asked.claimed, asked.missed)
            for shape, asked in demand.items()
        ]
        if shares != self._shown:
            record_host_pool(host_id=self._host_id, pool=[asdict(share) for share in shares])
            self._shown = shares

    def _ready(self, shape: PoolShape) -> int:
        ready = WarmMachine.objects.filter(host_id=self._host_id, state=WarmState.READY, **shape._asdict())
        return ready.count()

    def _work(self) -> None:
        while not self._ended.wait(ROUND_SECONDS):
            try:
                close_old_connections()
                self.run_once()
            except (DatabaseError, InterfaceError, BackendError) as exc:
                logger.warning("a round of the pool failed: %s", exc)
            except Exception:  # the next round may succeed
                logger.exception("a round of the pool failed")
        connections.close_all()
