"""Celery: queues `default` (`worker`), `webhooks` (`hooks`), `pages`, `push`, `media`, `host.<id>` of each `vmhost`.

A task is a wake-up that carries a row's id; the row is the source of truth. Every task may be lost, doubled or late.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from celery import Celery
from celery.exceptions import SecurityWarning
from celery.signals import (
    before_task_publish,
    import_modules,
    setup_logging,
    task_postrun,
    task_prerun,
    worker_init,
    worker_process_shutdown,
    worker_shutdown,
    worker_shutting_down,
)

from common import log_context, traces
from common.work.processes import WorkerProcess
from config.app_list import app_modules
from config.env import load_settings
from config.loading import pause_collector, resume_collector

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# Django's checks import every view, which no worker needs; they run once, when the database is prepared.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")


@import_modules.connect
def _begin_loading(**kwargs: Any) -> None:
    pause_collector()


# Beat sends tasks by their names and reads no row: it needs neither Django's apps nor the tasks.
IS_BEAT = load_settings().role == "beat"
# Both connect what loads: Django, then the tasks. Handlers are called in this order.
app = Celery("platform", fixups=[] if IS_BEAT else None)
app.config_from_object("config.celery_settings")
if not IS_BEAT:
    app.autodiscover_tasks()


@import_modules.connect
def _end_loading(**kwargs: Any) -> None:
    resume_collector()


logger = logging.getLogger(__name__)
# vmhost has to be root, and no task is read but JSON; the warning has no mark of a log line.
warnings.filterwarnings("ignore", category=SecurityWarning)


@setup_logging.connect
def _use_django_logging(**kwargs: Any) -> None:
    from logging.config import dictConfig

    from django.conf import settings

    dictConfig(settings.LOGGING)


@before_task_publish.connect
def _send_request_id(headers: dict[str, Any] | None = None, **kwargs: Any) -> None:
    if headers is not None:
        log_context.task_headers(headers)


@task_prerun.connect
def _adopt_request_id(task: Any = None, **kwargs: Any) -> None:
    """Adopt the request id that a task was sent with; tasks run one after the other in a thread."""
    sent = task.request.headers or {}
    log_context.begin_context(str(sent.get(log_context.HEADER) or ""))
    begin_task_span(task, str(sent.get(traces.HEADER) or ""))


def begin_task_span(task: Any, parent: str) -> None:
    """Begin a span that lasts to `end_task_span`, which Celery calls in the same thread."""
    if traces.are_on():
        task.request.trace_span = opened = ExitStack()
        opened.enter_context(traces.span(f"task {task.name}", "consumer", parent=parent))


@task_postrun.connect
def end_task_span(task: Any = None, state: str | None = None, **kwargs: Any) -> None:
    """Close the span of a task. Celery has handled what the task raised, so the task's state says whether it failed."""
    opened = getattr(task.request, "trace_span", None)
    if opened is None:
        return
    if state == "FAILURE":
        traces.set_outcome(error_type="task_failed")
    opened.close()


@worker_process_shutdown.connect
def _send_last_spans(**kwargs: Any) -> None:
    """Send the last spans: a process of a pool ends without Python's handlers at exit."""
    traces.end_sending()


@contextmanager
def _required(role: str) -> Iterator[None]:
    """Run a step that a process cannot do without: if it fails, the process ends, and its supervisor starts it again.

    Celery logs any exception of a handler but SystemExit, and would go on with a worker that never does its work.
    """
    try:
        yield
    except Exception as exc:  # the database is away, its disk is full, no descriptor is left to import a module
        logger.exception("%s cannot start", role)
        raise SystemExit(1) from exc


# The apps' work for this process's role that has begun.
_begun: list[WorkerProcess] = []


@worker_init.connect
def begin_work(**kwargs: Any) -> None:
    """Begin what the apps' modules `process` have for this process's role (config/app_list.py)."""
    from django.conf import settings

    role = settings.ENV.role
    found: list[WorkerProcess] = [module.PROCESS for module in app_modules("process")]
    own = [process for process in found if process.role == role]
    with _required(role):
        for name in (name for process in own for name in process.loads):
            import_module(name)
        for process in own:
            _begun.append(process)
            process.begin()


@worker_shutting_down.connect
def _end_work_soon(**kwargs: Any) -> None:
    """End work soon: in the handler of SIGTERM, before Celery ends its own parts."""
    for process in _begun:
        process.end_soon()


@worker_shutdown.connect
def _end_work(**kwargs: Any) -> None:
    while _begun:
        _begun.pop().end()
