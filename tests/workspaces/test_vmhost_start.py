"""The start of vmhost: it is open, or it ends and its supervisor tries again."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from celery import current_app
from celery.signals import worker_init
from django.conf import LazySettings
from django.db import OperationalError

from config import celery
from tests.fakehost import FakeHost
from vmbackend.errors import BackendUnavailable
from workspaces.host import process
from workspaces.process import PROCESS

QUEUE = "host.host_of_this_test"
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def own_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is added in a test is consumed by no later one."""
    monkeypatch.setattr(current_app.amqp.queues, "_consume_from", dict(current_app.amqp.queues.consume_from))


@pytest.fixture(autouse=True)
def own_handler() -> Iterator[None]:
    """The handler of SIGTERM that this process had is there again at the end."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What vmhost did."""
    done: list[str] = []

    def open_host() -> SimpleNamespace:
        done.append("opened")
        return SimpleNamespace(queue_name=QUEUE)

    monkeypatch.setattr(process, "open_host", open_host)
    monkeypatch.setattr(process, "close_host", lambda: done.append("closed"))
    return done


@pytest.mark.parametrize("error", [FULL, OperationalError("database or disk is full"), BackendUnavailable("No.")])
def test_a_vmhost_that_cannot_be_opened_ends(
    settings: LazySettings, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails() -> None:
        raise error

    settings.ENV = settings.ENV.model_copy(update={"role": "vmhost"})
    monkeypatch.setattr(process, "open_host", fails)
    monkeypatch.setattr(celery, "_begun", [])
    with pytest.raises(SystemExit):
        worker_init.send(sender=None)


@pytest.mark.django_db(transaction=True)
def test_remains_of_pulls_that_cannot_be_removed_do_not_stop_a_host(
    vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise FULL

    monkeypatch.setattr(vmhost.images, "sweep", fails)
    vmhost.restart()
    assert process.host_runtime() is vmhost.runtime


def test_a_signal_while_the_host_is_opened_closes_it_once_it_is_open(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened_after_a_signal() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        calls.append("opened")

    monkeypatch.setattr(process, "open_host", opened_after_a_signal)
    with pytest.raises(SystemExit) as end:
        PROCESS.begin()
    assert (calls, end.value.code) == (["opened", "closed"], 0)


def test_a_signal_after_the_host_is_open_closes_it(calls: list[str]) -> None:
    PROCESS.begin()
    assert calls == ["opened"]
    assert QUEUE in current_app.amqp.queues.consume_from
    with pytest.raises(SystemExit) as end:
        os.kill(os.getpid(), signal.SIGTERM)
    assert (calls, end.value.code) == (["opened", "closed"], 0)


def test_another_signal_while_the_host_is_closed_changes_nothing(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed_after_a_signal() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        calls.append("closed")

    monkeypatch.setattr(process, "close_host", closed_after_a_signal)
    PROCESS.begin()
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)
    assert calls == ["opened", "closed"]
