"""Work of the users of `common.work` until nothing of theirs waits, in a process that may be killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cdn.media import sweep as files_sweep
from certificates import hooks
from certificates.leases import due_ids
from certificates.steps import certificate_step
from common.work.dispatcher import Dispatcher
from notifications.process import push_providers
from notifications.sends.dispatcher import PushDispatcher
from notifications.sends.queue import live_sends
from pages.deploys import sweep as deploys_sweep
from pages.deploys import worker
from pages.models import PageDeploy
from pages.states import LIVE as LIVE_DEPLOYS
from webhooks.dispatcher import WebhookDispatcher
from webhooks.models import Delivery, DeliveryStatus
from workspaces.host import engine, process
from workspaces.models import Operation
from workspaces.models.operation import LIVE as LIVE_OPERATIONS

SECONDS = 60.0


def _passes(dispatcher: Dispatcher[Any], is_left: Callable[[], bool]) -> None:
    """Run the passes of its thread in this one; the end of each outcome is awaited."""
    until = time.monotonic() + SECONDS
    while (is_left() or dispatcher.is_busy) and time.monotonic() < until:
        dispatcher.wake()
        dispatcher.run_pass()
        dispatcher._woken.clear()
        dispatcher._woken.wait(0.2)  # so that the statements are those of work, and not of looks
    dispatcher._pool.shutdown(wait=False, cancel_futures=True)


def deliveries_run() -> None:
    _passes(WebhookDispatcher(4), Delivery.objects.filter(status=DeliveryStatus.PENDING, attempts=0).exists)


def sends_run() -> None:
    _passes(PushDispatcher(4, push_providers()), live_sends().exists)


def certificates_run() -> None:
    hooks.certificate_changed._handlers.clear()  # the app above has no such domain
    for key in due_ids(10):
        certificate_step(key)


def files_run() -> None:
    files_sweep.due_process()


def deploys_run() -> None:
    deploys_sweep.deploys_continue()
    until = time.monotonic() + SECONDS
    while PageDeploy.objects.filter(state__in=LIVE_DEPLOYS).exists() and time.monotonic() < until:
        worker.deploy_run()


def operations_run() -> None:
    """As vmhost: its start settles what its predecessor has left."""
    runtime, until = process.open_host(), time.monotonic() + SECONDS
    while (found := Operation.objects.filter(state__in=LIVE_OPERATIONS).first()) and time.monotonic() < until:
        engine.run_operation(found.pk, runtime)
