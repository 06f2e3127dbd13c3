"""SIGTERM while vmhost starts, before Celery handles signals. Machines may have to be stopped with their host."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from config import celery
from workspaces.host import process


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What vmhost did. The test's own handler of the signal is there again at the end."""
    done: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(process, "is_vmhost", lambda: True)
    monkeypatch.setattr(process, "open_host", lambda: done.append("opened"))
    monkeypatch.setattr(process, "close_host", lambda: done.append("closed"))
    yield done
    signal.signal(signal.SIGTERM, before)


def test_a_signal_while_the_host_is_opened_closes_it_once_it_is_open(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened_after_a_signal() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        calls.append("opened")

    monkeypatch.setattr(process, "open_host", opened_after_a_signal)
    with pytest.raises(SystemExit) as end:
        celery._open_host()
    assert (calls, end.value.code) == (["opened", "closed"], 0)


def test_a_signal_after_the_host_is_open_closes_it(calls: list[str]) -> None:
    celery._open_host()
    assert calls == ["opened"]
    with pytest.raises(SystemExit) as end:
        os.kill(os.getpid(), signal.SIGTERM)
    assert (calls, end.value.code) == (["opened", "closed"], 0)
