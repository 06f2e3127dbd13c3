"""Celery's settings and the beat schedule. Reasons for the numbers: docs/decisions/processes.md."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from celery import schedules

from config.app_list import app_modules
from config.database import host_of_url
from config.env import load_settings

_env = load_settings()


def _celery_url(url: str) -> str:
    """Return the URL as Celery spells it: a Unix socket is `redis+socket://`."""
    parts = urlsplit(url)
    return f"redis+socket://{parts.netloc}{parts.path}" if parts.scheme == "unix" else url


broker_url = _celery_url(_env.redis_url)
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
broker_transport_options = {
    # Far above every hard time limit: a shorter one delivers a running task again.
    "visibility_timeout": 6 * 3600,
    "socket_timeout": 15,
    "socket_connect_timeout": 3,
    "socket_keepalive": False,
    "max_retries": 0,
    # As settings.REDIS_PREFIX: queues, unacknowledged messages and the channels of remote control.
    "global_keyprefix": f"{_env.control_instance}:",
}
if _host := host_of_url(_env.database_url):
    # Redis lets it have no key that another process has, too; and by remote control it would command all workers.
    for _name in ("unacked", "unacked_index", "unacked_mutex"):
        broker_transport_options[f"{_name}_key"] = f"{_name}.{_host}"
    worker_enable_remote_control = False
result_backend = None
task_ignore_result = True
task_serializer = "json"
accept_content = ["json"]
task_default_queue = "default"
task_acks_late = False
task_publish_retry = False
worker_prefetch_multiplier = 1
worker_cancel_long_running_tasks_on_connection_loss = False
worker_hijack_root_logger = False
worker_send_task_events = False
timezone = "UTC"

# In memory: a schedule file that was cut off by a full disk would keep beat from starting. After a start every task is
# due at once, and no periodic task minds to run early.
beat_scheduler = "config.beat:FixedScheduler"
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_BEGIN = datetime.now(UTC) - timedelta(seconds=time.monotonic())


def _steady_now() -> datetime:
    """Return the time as no correction of the host's clock changes it.

    By the clock itself a correction of an hour backwards would keep every task from being sent for an hour.
    """
    return _BEGIN + timedelta(seconds=time.monotonic())


def _every(seconds: float) -> schedules.schedule:
    return schedules.schedule(timedelta(seconds=seconds), nowfun=_steady_now)


beat_schedule: dict[str, dict[str, Any]] = {
    name: {"last_run_at": _NEVER, **entry, "schedule": _every(entry["schedule"])}
    for app in app_modules("periodic_tasks")
    for name, entry in app.schedule(_env).items()
}
