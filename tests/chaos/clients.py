"""The client threads. Each has workspaces of its own, so that it knows what they hold; all read the lists of all."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.chaos import operations as op
from tests.chaos.announcements import send_test_event, suspend_namespace
from tests.chaos.answers import Answer
from tests.chaos.creation import create, create_part
from tests.chaos.ledger import Creation, Tracked
from tests.chaos.operations import Weighted
from tests.chaos.session import Session
from tests.chaos.sleep import SleepRequests
from tests.chaos.streams import read_stream

# What a machine's client does, and what a client does that wants many small answers.
LIGHT = (
    Weighted(20, op.write_metadata),
    Weighted(10, op.read_metadata),
    Weighted(6, op.rename),
    Weighted(10, op.read_workspace),
    Weighted(3, op.list_workspaces),
    Weighted(4, op.read_totals),
    Weighted(2, create_part),
    Weighted(3, op.write_part_of_metadata),
    Weighted(2, op.read_foreign),
    Weighted(4, send_test_event),
    Weighted(3, suspend_namespace),
)
MACHINE = (
    Weighted(8, op.write_file),
    Weighted(8, op.read_file),
    Weighted(6, op.run_command),
    Weighted(4, op.write_mark),
    Weighted(8, op.read_mark),
    Weighted(2, op.write_part_of_a_file),
    Weighted(3, op.write_metadata),
    Weighted(3, op.read_workspace),
    Weighted(3, op.read_totals),
    Weighted(3, op.read_guest),
    Weighted(1, op.sync),
    Weighted(3, read_stream),
    Weighted(2, op.change_network),
    Weighted(2, op.make_temporary),
    Weighted(2, op.pause),
    Weighted(4, op.power("resume", ends_machine=False)),
    Weighted(2, op.power("stop", ends_machine=True)),
    Weighted(4, op.power("start", ends_machine=False)),
    Weighted(1, op.power("restart", ends_machine=True)),
    Weighted(1, op.reinstall),
    Weighted(1, op.resize),
    Weighted(1, op.delete),
    Weighted(1, op.expire),
)
CREATE_TRIES = 6
# A client that gets no answer does not ask again at once.
WAIT_SECONDS = 0.3
# Between two operations: the processors are for the platform and its machines.
THINK_SECONDS = 0.05


class Pause:
    """Lets the threads come to rest between two operations."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._paused = True
        self._ended = False
        self._working = 0

    def begin_operation(self) -> bool:
        """Wait while paused. False: the run is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._ended or not self._paused)
            if not self._ended:
                self._working += 1
            return not self._ended

    def end_operation(self) -> None:
        with self._condition:
            self._working -= 1
            self._condition.notify_all()

    def pause_all(self, seconds: float) -> bool:
        """Whether every thread has come to rest within that time."""
        with self._condition:
            self._paused = True
            return self._condition.wait_for(lambda: not self._working, seconds)

    def resume_all(self) -> None:
        with self._condition:
            self._paused = False
            self._condition.notify_all()

    def end(self) -> None:
        with self._condition:
            self._ended = True
            self._condition.notify_all()


class Client(threading.Thread):
    """Does operations until the run ends. `most`: workspaces that it keeps."""

    def __init__(
        self,
        session: Session,
        pause: Pause,
        choices: Sequence[Weighted],
        *,
        most: int,
        sleep: SleepRequests | None = None,
    ) -> None:
        super().__init__(daemon=True, name=f"client {session.word}")
        self._session = session
        self._pause = pause
        self._choices = list(choices) + ([Weighted(4, sleep.put_to_sleep)] if sleep else [])
        self._most = most
        self._own: list[Tracked] = []

    def run(self) -> None:
        while self._pause.begin_operation():
            try:
                self._do_one()
            except Exception as error:
                self._session.expect("the run itself works", [f"{type(error).__name__}: {error!s}"])
            finally:
                self._pause.end_operation()
            time.sleep(THINK_SECONDS)

    def _do_one(self) -> None:
        known = self._session.ledger.workspaces
        self._own = [tracked for tracked in self._own if tracked.id in known and not tracked.may_vanish]
        if len(self._own) < self._most:
            self._create()
            return
        random = self._session.random
        chosen = random.choices(self._choices, [choice.weight for choice in self._choices])[0]
        chosen.run(self._session, random.choice(self._own))

    def _create(self) -> None:
        session = self._session
        creation = session.ledger.begin_creation(session.word, f"key-{session.token()}", session.token())
        for _ in range(CREATE_TRIES):
            for answer in self._send(creation):
                if answer.is_done:
                    tracked = session.ledger.add_workspace(creation, answer.body["workspace"]["id"])
                    if tracked not in self._own:
                        self._own.append(tracked)
            if creation.ids:
                self._leave_expectations()
                return
            time.sleep(WAIT_SECONDS)
        creation.abandoned = True

    def _leave_expectations(self) -> None:
        """What the newest workspace must keep from its beginning on."""
        op.write_file(self._session, self._own[-1])
        op.write_mark(self._session, self._own[-1])

    def _send(self, creation: Creation) -> list[Answer]:
        """The request; now and then two of it at once."""
        if self._session.random.random() < 0.7:
            return [create(self._session, creation)]
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda _: create(self._session, creation), range(2)))
