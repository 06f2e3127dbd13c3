"""The threads of the sampler: each goes on whatever fails, and ends when it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from django.db import IntegrityError, OperationalError

from tests.callers import Caller
from tests.workspaces.rows import make_host
from vmbackend.samples import Sample
from workspaces.host import process
from workspaces.host.metering import sampler as sampling
from workspaces.host.metering import writer as writing
from workspaces.host.metering.meter import MeterTarget, UsageDelta
from workspaces.host.metering.sampler import FailureLog, Sampler
from workspaces.host.metering.writer import UsageWriter
from workspaces.models import Usage
from workspaces.usage.amounts import Amounts


def usage_delta(key: str) -> UsageDelta:
    return UsageDelta(MeterTarget(key, "a", "n", 1000, 128, True, 0), Sample(1, "r"), Amounts(), Amounts(), 0, 0, [], 0)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[UsageWriter]:
    monkeypatch.setattr(writing, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(writing, "close_old_connections", lambda: None)
    made = UsageWriter()
    yield made
    made._ended.set()
    made.stop()


def test_a_database_that_is_away_is_waited_for_and_the_order_is_kept(
    writer: UsageWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def write(parts: object, tick: int) -> None:
        tried.append(tick)
        if len(tried) < 4:
            raise OperationalError("away")

    monkeypatch.setattr(writing, "write_deltas", write)
    for tick in (1, 2, 3):
        writer.submit(tick, {"ws": usage_delta("ws")})
    writer.start()
    until(lambda: len(writer.finished) == 3)
    assert tried == [1, 1, 1, 1, 2, 3]
    assert [tick for tick, _ in writer.finished] == [1, 2, 3]


def test_a_writer_is_behind_while_something_waits(writer: UsageWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    away, tried = threading.Event(), threading.Event()
    away.set()

    def write(parts: object, tick: int) -> None:
        tried.set()
        if away.is_set():
            raise OperationalError("away")

    monkeypatch.setattr(writing, "write_deltas", write)
    writer.start()
    writer.submit(1, {"ws": usage_delta("ws")})
    assert tried.wait(120)
    assert not writer.is_behind
    writer.submit(2, {"ws": usage_delta("ws")})
    assert writer.is_behind
    away.clear()
    until(lambda: len(writer.finished) == 2)
    assert not writer.is_behind


def test_a_writer_that_ends_gives_up_what_waits_for_a_database(
    writer: UsageWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(parts: object, tick: int) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(writing, "write_deltas", away)
    monkeypatch.setattr(writing, "STOP_SECONDS", 0.05)
    writer.start()
    writer.submit(1, {"ws": usage_delta("ws")})
    writer.submit(2, {"ws": usage_delta("ws")})
    writer.stop()
    writer._thread.join(10)
    assert not writer._thread.is_alive()
    assert [tick for tick, _ in writer.finished] == [1, 2]


def test_what_can_never_be_written_stops_nothing(writer: UsageWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def write(parts: object, tick: int) -> None:
        tried.append(tick)
        if tick == 1:
            raise IntegrityError("wrong in itself")

    monkeypatch.setattr(writing, "write_deltas", write)
    writer.start()
    writer.submit(1, {"ws": usage_delta("ws")})
    writer.submit(2, {"ws": usage_delta("ws")})
    until(lambda: len(writer.finished) == 2)
    assert tried == [1] * writing.MAX_TRIES + [2]


@pytest.mark.django_db(transaction=True)
def test_a_sampler_that_stops_writes_what_it_measured(vmhost, api: Caller) -> None:
    key = api.post("/workspace", {}).json()["workspace"]["id"]
    vmhost.driver.add_usage(key, cpu_time_ns=123)
    meters = process._sampler._meters
    until(lambda: key in meters and meters[key].last and meters[key].last.cpu_time_ns == 123)
    process._sampler.stop()
    assert Usage.objects.get(workspace_id=key).total_cpu_time_ns == 123


@pytest.mark.django_db(transaction=True)
def test_a_round_that_fails_is_followed_by_the_next(
    vmhost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds: list[int] = []

    def roster(name: str) -> dict:
        rounds.append(1)
        if len(rounds) == 1:
            raise ZeroDivisionError
        return {}

    monkeypatch.setattr(sampling, "meter_targets", roster)
    until(lambda: len(rounds) >= 3)
    assert any(record.exc_info for record in caplog.records if record.name == sampling.__name__)


@pytest.mark.django_db
def test_a_sampler_that_was_never_started_ends_too(transactional_db: None) -> None:
    before = threading.active_count()
    Sampler(make_host().pk, None).stop()  # type: ignore[arg-type]
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("wall", "wait"), [(10.0, 0.5), (10.5, 1.0), (10.52, 0.98), (10.49, 1.01), (10.45, 1.05), (10.3, 0.2), (11.2, 0.3)]
)
def test_rounds_begin_in_the_middle_of_a_second(wall: float, wait: float) -> None:
    assert sampling.until_next_round(wall) == pytest.approx(wait)


def test_a_failure_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    trouble = FailureLog("thing")
    for _ in range(5):
        trouble.begin(ValueError("away"))
    trouble.end()
    trouble.end()
    assert [record.getMessage() for record in caplog.records] == ["thing: away", "thing: works again after 0 s"]
