"""Moves of workspaces to this host: their snapshots are copied, and their machines are made, off or asleep.

The commit is not this host's. Until it has come, the machine here has an epoch that its workspace has not yet, so that
nothing starts it; if it never comes, what was made is removed (`host.moved`).
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connections
from django.db.models import QuerySet

from vmbackend.driver import MachineIdentity, MachineState
from vmbackend.errors import BackendError
from workspaces.host.machine_spec import image_reference, machine_spec
from workspaces.host.released_calls import released_calls
from workspaces.models import Arrival, Move, Workspace
from workspaces.models.move import ArrivalState, MoveState
from workspaces.moves.rows import (
    arrival_progress,
    arrival_ready,
    arrival_received,
    arrival_refuse,
    arrival_retry,
)
from workspaces.operations.queue import MOVES_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vmbackend.driver import Driver
    from vmbackend.images.store import ImageStore
    from vmbackend.models import Host
    from workspaces.host.transfers import Transfers

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
LOOK_SECONDS = 1.0
MAX_ATTEMPTS = 6
# A store's manifest, and the blocks of a file system.
_MARGIN_BYTES = 64 << 20
MIB = 1 << 20


class MoveIsOver(Exception):
    """The move was committed, cancelled or has failed while this host worked for it."""


@dataclass(frozen=True, slots=True)
class ReceivingHost:
    """The parts of a host with which it receives. `id`: its row's."""

    id: str
    driver: Driver
    images: ImageStore
    transfers: Transfers


class ArrivalKeeper:
    """The arrivals of one vmhost, each in a thread of its own; MOVES_AT_ONCE of them."""

    def __init__(self, host: ReceivingHost) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._looking: threading.Thread | None = None
        self._threads: dict[str, threading.Thread] = {}
        self._ended = threading.Event()

    def begin(self) -> None:
        """Look after what moves here, until nothing does. One indexed query."""
        if not self._coming().exists():
            return
        with self._lock:
            if self._looking is None or not self._looking.is_alive():
                self._looking = threading.Thread(target=self._look, name="arrivals", daemon=True)
                self._looking.start()

    def stop(self) -> None:
        """End the threads; the next process of this host goes on."""
        self._ended.set()
        for thread in filter(None, (self._looking, *self._threads.values())):
            thread.join(timeout=10)

    def _coming(self) -> QuerySet[Arrival]:
        waiting = Arrival.objects.filter(target_id=self._host.id, settled_at=None)
        return waiting.filter(state=ArrivalState.RECEIVING, move__state=MoveState.LIVE)

    def _look(self) -> None:
        try:
            while self._coming().exists() and not self._ended.is_set():
                self._begin_offered()
                self._ended.wait(POLL_SECONDS)
        except Exception:  # the database is away: the heartbeat begins it again
            logger.exception("moves to this host are not looked after now")
        finally:
            connections.close_all()

    def _begin_offered(self) -> None:
        """Begin what its source has begun, as far as there are threads for it. One that its source has not would only
        keep others waiting, whose sources may wait for this host.
        """
        offered = self._coming().exclude(move__offers=[]).order_by("move__created_at")
        for move_id in list(offered.values_list("move_id", flat=True)):
            self._threads = {key: thread for key, thread in self._threads.items() if thread.is_alive()}
            if move_id not in self._threads and len(self._threads) < MOVES_AT_ONCE:
                thread = threading.Thread(target=self._receive, args=[move_id], name=f"arrival-{move_id}", daemon=True)
                self._threads[move_id] = thread
                thread.start()

    def _receive(self, move_id: str) -> None:
        try:
            Receiving(self._host, move_id, self._ended).run()
        except Exception:  # the database is away: the heartbeat begins it again
            logger.exception("the arrival of %s is interrupted", move_id)
        finally:
            connections.close_all()


class Receiving:
    """The target's half of one move, to its end."""

    def __init__(self, host: ReceivingHost, move_id: str, ended: threading.Event) -> None:
        self._driver = released_calls(host.driver)
        self._images = released_calls(host.images)
        self._transfers = host.transfers
        self._ended = ended
        self._is_over = False
        self._begun = 0
        self._move = Move.objects.select_related("source", "target", "arrival").get(pk=move_id)
        self._arrival = self._move.arrival

    def run(self) -> None:
        """Receive until the machine is there, is refused, or the move is over; an error that may pass is tried again
        a few times.
        """
        while not self._must_end():
            try:
                self._look()
                if self._must_end() or self._go_on():
                    return
            except MoveIsOver:
                return
            except BackendError as error:
                if not self._is_tried_again(error):
                    return

    def _go_on(self) -> bool:
        """Take one step. Return whether the machine is there."""
        self._move.refresh_from_db(fields=["offers", "needs", "state"])
        offers = [offer for offer in self._move.offered if offer["id"] not in self._arrival.received]
        for offer in offers:
            self._take(offer)
        if self._move.pk in self._arrival.received:
            arrival_ready(self._arrival, self._make_machine())
            return True
        self._ended.wait(POLL_SECONDS)
        return False

    def _take(self, offer: dict[str, Any]) -> None:
        source = self._move.source
        if source is None:  # it was removed
            raise MoveIsOver
        if offer["id"] == self._move.pk and self._move.memory:
            self._require_fit()
        if offer["id"] == self._move.pk:
            self._arrival.bytes_done -= self._begun  # counted again with its folder
        with self._watched():
            if offer["id"] == self._move.first_id:  # the machine's own entry has only the rest to copy
                self._driver.begin_receiving(self._move.pk, self._fetcher(offer, source), size_bytes=offer["bytes"])
            else:
                self._driver.receive_snapshot(offer["id"], self._fetcher(offer, source), size_bytes=offer["bytes"])
        if offer["id"] == self._move.first_id:
            self._begun = self._copied
        arrival_received(self._arrival, offer["id"], self._before + self._copied)

    def _fetcher(self, offer: dict[str, Any], source: Host) -> Callable[[Path], None]:
        return lambda folder: self._transfers.fetch(
            offer["id"],
            folder,
            source,
            max_bytes=offer["bytes"] + _MARGIN_BYTES,
            max_file_bytes=max(offer["bytes"], self._move.disk_mb * MIB) + _MARGIN_BYTES,
            on_progress=self._note,
            give_up=self._must_end,
        )

    def _require_fit(self) -> None:
        """Refuse the workspace before a byte of its memory is copied. Raise MoveIsOver."""
        self._ensure_image(self._workspace())  # one of the things that it needs
        differs = self._driver.compare_needs(self._move.needs)
        if differs:
            names = ", ".join(each.what for each in differs)
            arrival_refuse(self._arrival, "host_unfit", f"The target host differs: {names}.", differs)
            raise MoveIsOver

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Write how far the copy in the block is, and ask whether it is still wanted, in a thread: who copies waits for
        nothing.
        """
        self._before, self._copied = self._arrival.bytes_done, 0
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=[done], name=f"watch-{self._move.pk}", daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            watch.join()

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(LOOK_SECONDS):
            try:
                self._look()
                arrival_progress(self._arrival, self._before + self._copied)
            except Exception as exc:  # the database may be away for a moment
                logger.warning("the arrival of %s is not watched now: %s", self._move.workspace_id, exc)
        connections.close_all()

    def _note(self, copied: int) -> None:
        self._copied = copied

    def _workspace(self) -> Workspace:
        """Return the row, which is the source's until the commit. Raise MoveIsOver."""
        row = Workspace.objects.select_related("namespace", "account").filter(pk=self._move.workspace_id).first()
        if row is None:
            raise MoveIsOver
        return row

    def _ensure_image(self, row: Workspace) -> Any:
        return self._images.get(row.image_digest) or self._images.ensure(
            image_reference(row),
            progress=lambda percent, message: None,
            deadline=time.monotonic() + settings.ENV.image_pull_seconds,
            cancelled=self._must_end,
        )

    def _make_machine(self) -> MachineIdentity:
        """Make the machine under the next epoch, off or asleep. Safe to repeat."""
        row, move = self._workspace(), self._move
        epoch = move.epoch + 1
        if self._driver.epoch_of(row.pk) not in (None, epoch):
            self._driver.set_aside(row.pk)  # of an earlier stay on this host
        if self._driver.state(row.pk) is MachineState.ASLEEP:  # an attempt died right before it was told
            self._driver.destroy(row.pk)
        spec = machine_spec(row, self._ensure_image(row), snapshot=move.pk)
        identity: MachineIdentity = self._driver.prepare(replace(spec, ip=move.address, epoch=epoch))
        if move.memory:
            self._driver.sleep_on(row.pk, move.pk)
        # The source removes its copy once the move is committed.
        self._driver.sync_machine(row.pk)
        return identity

    def _must_end(self) -> bool:
        """Return whether the move is over, as far as is known, or this process ends. Waits for nothing."""
        return self._ended.is_set() or self._is_over

    def _look(self) -> None:
        """Find out whether the move is over."""
        live = Move.objects.filter(pk=self._move.pk, state=MoveState.LIVE)
        self._is_over = not live.filter(arrival__state=ArrivalState.RECEIVING).exists()

    def _is_tried_again(self, error: BackendError) -> bool:
        """Wait before another attempt; refuse the workspace if there is none. Return whether there is one."""
        attempts = arrival_retry(self._arrival, error.code, error.message)
        logger.warning("the arrival of %s failed (%s): %s", self._move.workspace_id, attempts, error.message)
        if not error.retryable or attempts >= MAX_ATTEMPTS:
            arrival_refuse(self._arrival, error.code, error.message)
            return False
        self._ended.wait(min(30.0, settings.ENV.retry_seconds * 2 ** (attempts - 1)))
        return True
