"""The start of vmhost: it is open, or it ends and its supervisor tries again."""

from __future__ import annotations

import errno

import pytest
from celery.signals import worker_init
from django.db import OperationalError

from config import celery
from tests.fakehost import FakeHost
from vmbackend.errors import BackendUnavailable
from workspaces.host import process

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", [FULL, OperationalError("database or disk is full"), BackendUnavailable("No.")])
def test_a_vmhost_that_cannot_be_opened_ends(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails() -> None:
        raise error

    assert celery.app is not None  # its module connects the handler
    monkeypatch.setattr(process, "is_vmhost", lambda: True)
    monkeypatch.setattr(process, "open_host", fails)
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
