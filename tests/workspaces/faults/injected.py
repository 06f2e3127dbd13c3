"""What can go wrong at a step, each as a function that arranges it and notes when it happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.fakehost import Died, FakeHost
from vmbackend.driver import MachineState
from vmbackend.errors import BackendError, BackendUnavailable, InvalidMachineState
from workspaces.host import engine, faults
from workspaces.host.context import Context

FINAL, PASSING = "The backend says no.", "The backend does not answer."


@dataclass
class Scene:
    """One cell of the table: at `step` of `kind` something happens to the workspace `made`."""

    host: FakeHost
    patch: pytest.MonkeyPatch
    kind: str
    step: str
    made: str = ""
    happened: int = 0

    def before(self, happens: Callable[[], None], times: int = 1) -> None:
        def point(kind: str, step: str) -> None:
            if (kind, step) == (self.kind, self.step) and self.happened < times:
                self.happened += 1
                happens()

        self.patch.setattr(faults, "fault_point", point)

    def after(self, happens: Callable[[], None]) -> None:
        kind = engine.KINDS[self.kind]
        steps = tuple((name, self._then(work, happens) if name == self.step else work) for name, work in kind.steps)
        self.patch.setitem(engine.KINDS, self.kind, replace(kind, steps=steps))

    def _then(self, work: Callable[[Context], None], happens: Callable[[], None]) -> Callable[[Context], None]:
        def both(context: Context) -> None:
            work(context)
            if not self.happened:
                self.happened += 1
                happens()

        return both


def raiser(error: BaseException) -> Callable[[], None]:
    def happens() -> None:
        raise error

    return happens


def _unavailable() -> BackendError:
    return BackendUnavailable(PASSING)


def _kill(scene: Scene) -> Callable[[], None]:
    def happens() -> None:
        if scene.host.driver.state(scene.made) in (MachineState.RUNNING, MachineState.PAUSED):
            scene.host.driver.kill(scene.made)

    return happens


def _redis_goes(scene: Scene) -> Callable[[], None]:
    def happens() -> None:
        scene.host.redis_away = True

    return happens


@dataclass(frozen=True)
class Fault:
    """`cured`: the operation ends as if nothing had been. `sentences`: one of them is in the activity otherwise."""

    name: str
    arrange: Callable[[Scene], None]
    cured: bool = False
    sentences: tuple[str, ...] = ()


MANY = 5  # more than an operation has attempts
FAULTS = [
    Fault("raises what a retry cures", lambda s: s.before(raiser(_unavailable())), cured=True),
    Fault("raises it at every attempt", lambda s: s.before(raiser(_unavailable()), MANY), sentences=(PASSING,)),
    Fault("raises for good", lambda s: s.before(raiser(InvalidMachineState(FINAL)), 2), sentences=(FINAL,)),
    Fault("vmhost dies", lambda s: s.before(raiser(Died())), cured=True),
    Fault("vmhost dies every time", lambda s: s.before(raiser(Died()), MANY), sentences=("was tried 3 times",)),
    Fault("the machine is killed", lambda s: s.before(_kill(s))),
    Fault("Redis is away", lambda s: s.before(_redis_goes(s)), cured=True),
]
# After the other steps they are the same as before the next one.
AFTER_THE_END = [
    Fault("raises after its end", lambda s: s.after(raiser(InvalidMachineState(FINAL))), cured=True),
    Fault("vmhost dies after its end", lambda s: s.after(raiser(Died())), cured=True),
]
