"""Both providers on this host, a workspace with a token, and the process `push` as threads of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import LazySettings

from notifications.models import Provider
from notifications.process import push_providers
from notifications.providers import fcm
from notifications.sends import queue
from notifications.sends.dispatcher import PushDispatcher
from tests.callers import Caller
from tests.notifications.browsers import PushService, push_service
from tests.notifications.google import Google, google, loopback_adapter
from tests.notifications.rows import send_token
from tests.notifications.senders import Sender
from tests.webhooks.sending import permitted
from tests.workspaces.rows import make_workspace


@pytest.fixture
def browsers(settings: LazySettings) -> Iterator[PushService]:
    """The push service, which the operator lists as a place on this host."""
    with push_service() as made, permitted(settings, made):
        yield made


@pytest.fixture
def phones(settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    """FCM, with the credentials of this instance."""
    with google() as made:
        path = made.write_credentials(tmp_path / "service-account.json")
        settings.ENV = settings.ENV.model_copy(update={"fcm_credentials": path})
        monkeypatch.setattr(fcm, "BoundedAdapter", loopback_adapter(made.origin))
        yield made


@pytest.fixture
def sender(api: Caller) -> Sender:
    """Code in a workspace of `api`, with a token."""
    return sender_of(api)


@pytest.fixture
def new_sender(new_account: Callable[..., Caller]) -> Callable[[str], Sender]:
    return lambda name: sender_of(new_account(name))


def sender_of(caller: Caller, **options: Any) -> Sender:
    workspace = make_workspace(caller.account)
    token, secret = send_token(workspace, **options)
    return Sender(caller.client, caller.account, workspace, token, secret)


@pytest.fixture
def pushing(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AbstractContextManager[PushDispatcher]]:
    """Runs a dispatcher, as `push` does, and wakes it."""

    @contextmanager
    def run(threads: int = 64) -> Iterator[PushDispatcher]:
        providers = push_providers()
        made = PushDispatcher(threads, providers)
        made.start()
        monkeypatch.setattr(queue, "PUSH_WAKEUP", SimpleNamespace(send=made.wake))  # as Celery's task does
        try:
            yield made
        finally:
            made.stop(seconds=12)
            providers[Provider.FCM].close()  # type: ignore[attr-defined]

    return run
