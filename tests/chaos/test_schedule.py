"""The schedule is a function of the seed, and every kind of fault comes."""

from __future__ import annotations

import io
from itertools import islice

from tests.chaos.faults import ALONE, FAULTS
from tests.chaos.report import Report
from tests.chaos.schedule import Planned, planned_faults

KINDS = list(FAULTS)


def first(seed: int, count: int) -> list[Planned]:
    return list(islice(planned_faults(seed, KINDS, 10), count))


def test_one_seed_is_one_schedule() -> None:
    assert first(7, 100) == first(7, 100)
    assert first(7, 100) != first(8, 100)


def test_every_kind_comes_before_any_comes_again() -> None:
    assert sorted(planned.kind for planned in first(1, len(KINDS))) == sorted(KINDS)
    assert ALONE.keys() < FAULTS.keys()


def test_the_report_counts_and_says_a_violation_once() -> None:
    report = Report(io.StringIO())
    report.count_fault("kill api", "[17]")
    report.count_operation("create", "done")
    for _ in range(2):
        report.record_check("it holds", ["it does not"])
    shown = report.summary()
    assert len(report.violations) == 1
    for text in ("faults: 1", "1 kill api", "operations: 1", "checks: 2", "violations: 1", "it holds: it does not"):
        assert text in shown


def test_exceptions_in_the_logs_are_counted(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "api.log").write_text(
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nredis.ConnectionError: gone\nINFO: b\n'
    )
    report = Report(io.StringIO())
    report.add_log_errors(tmp_path)
    assert report.log_errors == {"api: redis.ConnectionError: gone": 1}
