from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.callers import Caller
from tests.workspaces.usage.measured import MeasuredHost
from workspaces import call_counter
from workspaces.host.metering import busy


@pytest.fixture
def host(api: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MeasuredHost]:
    # A round that another machine's answer is late for is what some tests are about; in others it depends on the load.
    monkeypatch.setattr(busy, "WAIT_SECONDS", 120.0)
    made = MeasuredHost(api.account, tmp_path / "host", monkeypatch)
    yield made
    made.sampler.stop()
    call_counter.flush_calls()
