"""The course of a run: active phases, in which clients work and faults hit, and quiet points with all checks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from supervise import control
from tests.chaos import sites, verify
from tests.chaos.clients import LIGHT, MACHINE, Client, Pause
from tests.chaos.faults import ALONE, FAULTS
from tests.chaos.invariants import problems_of
from tests.chaos.schedule import Planned, planned_faults
from tests.chaos.session import Session
from tests.chaos.sleep import SleepRequests
from tests.chaos.snapshot import Snapshot, take_snapshot
from tests.chaos.world import SETTLE_SECONDS, World

MACHINE_CLIENTS = 2  # for each account
WORKSPACES = 2  # of each of them
ACTIVE_SECONDS = 40.0
PARK_SECONDS = 120.0
# Some passes of the reconciliation (3 s each here), after the opening of a vmhost that died just before.
AGREE_SECONDS = 40.0
AT_ONCE = 2  # faults
# Of a hold: a short run has many faults, a long one has long outages too.
SHORT_HOLD, LONG_HOLD, LONG_RUN_SECONDS = 12.0, 60.0, 1200.0
COMES_BACK = "everything comes back by itself"


class Run:
    """One run on a started world. `kinds`: the faults that it chooses from."""

    def __init__(self, world: World, *, seed: int, seconds: float, kinds: list[str]) -> None:
        self._world = world
        self._seed = seed
        self._seconds = seconds
        hold = LONG_HOLD if seconds >= LONG_RUN_SECONDS else SHORT_HOLD
        self._planned = planned_faults(seed, kinds, hold)
        self._next = next(self._planned)
        self._sleep = SleepRequests(world.instance.instance, world.instance.settings)
        self._over = threading.Event()
        self._pause = Pause()

    def carry_out(self) -> None:
        """Until the time is over, then a last quiet point at which every workspace is started."""
        until = time.monotonic() + self._seconds
        with self._clients() as sessions:
            while (left := until - time.monotonic()) > 0:
                self._pause.resume_all()
                self._inject(min(left, ACTIVE_SECONDS))
                self._quiet(sessions, last=until - time.monotonic() <= 0)

    @contextmanager
    def _clients(self) -> Iterator[dict[str, Session]]:
        """The threads, paused; yields the sessions of the checks."""
        world = self._world
        clients: list[Client] = []
        for word in world.credentials:
            for number in range(MACHINE_CLIENTS):
                session = self._session(word, str(number))
                clients.append(Client(session, self._pause, MACHINE, most=WORKSPACES, sleep=self._sleep))
            clients.append(Client(self._session(word, "light"), self._pause, LIGHT, most=1))
            clients.append(Client(self._session(word, "sites"), self._pause, sites.CHOICES, most=1))
        for client in clients:
            client.start()
        try:
            yield {word: self._session(word, "checks") for word in world.credentials}
        finally:
            self._pause.end()
            self._sleep.close()

    def _session(self, word: str, name: str) -> Session:
        world = self._world
        url, headers = world.instance.settings.base_url, world.credentials[word]
        return Session(url, word, headers, world.ledger, world.report, f"{self._seed} {word} {name}")

    # Faults

    def _inject(self, seconds: float) -> None:
        """The next faults of the schedule, for so long; at the end none of them holds any more."""
        self._over.clear()
        until = time.monotonic() + seconds
        held: set[Future[None]] = set()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while True:
                planned = self._next
                if time.monotonic() + planned.wait > until:
                    time.sleep(max(0.0, until - time.monotonic()))
                    break
                self._next = next(self._planned)
                time.sleep(planned.wait)
                # One place stays free, so that a short fault hits while another one holds.
                alone = planned.kind in ALONE
                while len([future for future in held if not future.done()]) > (0 if alone else AT_ONCE - 1):
                    wait(held, timeout=0.5)
                held = {future for future in held if not future.done()} | {pool.submit(self._hit, planned)}
                if alone:
                    wait(held)
            self._over.set()

    def _hit(self, planned: Planned) -> None:
        report = self._world.report
        try:
            with FAULTS[planned.kind](self._world, planned.pick) as hit:
                report.count_fault(planned.kind, f"{hit} (for {planned.seconds} s)")
                self._over.wait(planned.seconds)
        except Exception as error:
            report.record_check(COMES_BACK, [f"after {planned.kind}: {error}"])

    # Quiet points

    def _quiet(self, sessions: dict[str, Session], *, last: bool) -> None:
        report = self._world.report
        parked = self._pause.pause_all(PARK_SECONDS)
        report.record_check("every request ends", [] if parked else [f"some did not within {PARK_SECONDS:.0f} s"])
        report.say("quiet")
        self._require_back()
        self._check()
        verify.forget_gone(sessions)
        for session in sessions.values():
            verify.delete_unwanted(session)
            verify.delete_namespaces(session)
        verify.verify_all(sessions, start_all=last)
        verify.verify_sites(sessions, self._world.instance)
        verify.verify_credits(self._world.instance, report)
        self._world.ledger.settle()
        self._check()
        if not last:
            verify.leave_expectations(sessions, self._sleep)

    def _require_back(self) -> None:
        """Every process runs and the platform serves; supervisord is only down where a fault ended it."""
        world = self._world
        supervised = world.is_supervised()
        try:
            world.bring_up()
            world.instance.wait_until_serving()
            problems = [] if supervised else ["supervisord had ended by itself"]
        except AssertionError as error:
            states = {row.name: row.state for row in control.process_states(world.instance.instance)}
            problems = [f"{error} {states}"]
        world.report.record_check(COMES_BACK, problems)

    def _check(self) -> None:
        """Wait until every invariant holds, within the time that each may take; record what still does not."""
        ledger, report = self._world.ledger, self._world.report
        snapshot = self._settled()
        deadline = time.monotonic() + AGREE_SECONDS
        while any((problems := problems_of(snapshot, ledger)).values()) and time.monotonic() < deadline:
            time.sleep(0.5)
            snapshot = take_snapshot(self._world.instance)
        for name, found in problems.items():
            report.record_check(name, found)

    def _settled(self) -> Snapshot:
        """A snapshot without an operation under way, or that of the end of the wait."""
        snapshot: list[Snapshot] = []

        def at_rest() -> bool:
            snapshot[:] = [take_snapshot(self._world.instance)]
            return not snapshot[0].live and not snapshot[0].pages.live

        verify.wait_until(at_rest, SETTLE_SECONDS, "no operation is under way")
        return snapshot[0]
