"""What each test takes: `test SECONDS PART NAME`, appended to the file that `TEST_TIMES` names."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = os.environ.get("TEST_TIMES")
    if not target or hasattr(session.config, "workerinput"):  # the process that spreads the tests hears of all of them
        return
    part = os.environ.get("TEST_PART", "tests")
    with Path(target).open("a") as file:
        file.writelines(f"test\t{seconds:.2f}\t{part}\t{name}\n" for name, seconds in _seconds.items())
