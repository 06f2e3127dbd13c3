"""The wake-up of the process that sends events."""

from __future__ import annotations

from common.work.wakeups import ProcessWakeup

HOOKS_WAKEUP = ProcessWakeup(queue="webhooks", task="webhooks.tasks.send_deliveries")
