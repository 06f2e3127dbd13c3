"""The process `hooks`: it sends events also while Redis is away, as Celery brings notifications and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

from common.work.processes import DispatcherProcess

if TYPE_CHECKING:
    from webhooks.dispatcher import WebhookDispatcher


def _build() -> WebhookDispatcher:
    # The sending code is of no use to the other workers, which load this module, too.
    from webhooks.dispatcher import WebhookDispatcher

    return WebhookDispatcher(settings.ENV.webhook_threads)


PROCESS = DispatcherProcess("hooks", _build)
