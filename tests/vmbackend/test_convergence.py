"""When programs are frozen, and the machine is stopped, for the end of its saved memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import libvirt
import pytest

from vmbackend.errors import GuestUnreachable
from vmbackend.libvirt import convergence
from vmbackend.libvirt.convergence import Convergence

TOTAL = 512 << 20


@dataclass
class Job:
    """A job as libvirt describes it, and what was asked of its machine."""

    kind: int = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
    written: int = 0
    left: int = TOTAL
    asked: list[str] = field(default_factory=list)

    def jobInfo(self) -> list[int]:
        return [self.kind, 0, 0, 0, 0, 0, TOTAL, self.written, self.left, 0, 0, 0]

    def migrateSetMaxSpeed(self, megabytes: int) -> None:
        self.asked.append("slow" if megabytes < 1000 else "fast")

    def suspend(self) -> None:
        self.asked.append("suspend")

    def abortJob(self) -> None:
        self.asked.append("abort")

    def freeze(self) -> None:
        self.asked.append("freeze")

    def migrateSetMaxDowntime(self, _milliseconds: int) -> None:
        pass


def convergence_of(job: Job, *, room: bool = True, memory_mb: int = 512) -> Convergence:
    return Convergence(job, memory_mb, job.freeze, lambda: room)


def test_programs_are_frozen_near_the_end_while_the_writer_is_slow() -> None:
    job = Job()
    watched = convergence_of(job)
    watched.look()
    assert job.asked == []
    job.left = 10 << 20
    watched.look()
    watched.look()
    assert (job.asked, watched.was_frozen) == (["slow", "freeze", "fast"], True)


@pytest.mark.parametrize("case", ["rewritten", "late", "no room"])
def test_programs_of_a_machine_that_changes_without_end_are_frozen(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    job = Job(written=TOTAL + 1 if case == "rewritten" else 0, left=TOTAL)
    if case == "late":
        monkeypatch.setattr(convergence, "_LATEST_SECONDS", 0.0)
    watched = convergence_of(job, room=case != "no room")
    watched.look()
    assert job.asked == ["slow", "freeze", "fast"]


@pytest.mark.parametrize("case", ["rewritten", "late"])
def test_a_machine_that_changes_in_spite_of_that_is_stopped_once(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    job = Job(left=10 << 20)
    if case == "late":
        monkeypatch.setattr(convergence, "_STILL_SECONDS", 0.0)
    watched = convergence_of(job)
    watched.look()
    job.left, job.written = TOTAL, 2 * TOTAL + 1 if case == "rewritten" else 0
    watched.look()
    watched.look()
    assert job.asked == ["slow", "freeze", "fast", "suspend"]


def test_programs_of_a_small_machine_are_frozen_before_the_job() -> None:
    job = Job(left=0)
    watched = convergence_of(job, memory_mb=128)
    watched.begin()
    job.left = TOTAL
    watched.look()
    assert (job.asked, watched.was_frozen) == (["freeze"], True)


def test_a_job_that_ended_before_the_answer_was_not_frozen_in_time() -> None:
    job = Job(left=10 << 20)

    def end() -> None:
        job.kind = libvirt.VIR_DOMAIN_JOB_NONE

    watched = Convergence(job, 512, end, lambda: True)
    watched.look()
    assert not watched.was_frozen


def test_a_guest_that_does_not_answer_ends_the_job() -> None:
    job = Job(left=10 << 20)

    def refuse() -> None:
        raise GuestUnreachable("It does not answer.")

    watched = Convergence(job, 512, refuse, lambda: True)
    watched.look()
    watched.look()
    assert job.asked == ["slow", "abort"]
    assert str(watched.failure) == "It does not answer."
