from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.callers import Caller
from tests.workspaces.usage.measured import MeasuredHost
from workspaces import call_counter


@pytest.fixture
def host(api: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MeasuredHost]:
    made = MeasuredHost(api.account, tmp_path / "host", monkeypatch)
    yield made
    made.sampler.stop()
    call_counter.flush_calls()
