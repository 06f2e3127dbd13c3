"""`GET /healthz` and `GET /readyz`. Neither needs a credential, and neither shows more than its words."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse

from common.cached_value import CachedValue
from common.redis import redis_is_available
from vmbackend.host_states import HostState, host_answers
from vmbackend.models import Host

READY_SECONDS = 1.0
# Free on the disk of the state folder: below it the database and logs are about to fail.
LEAST_FREE_BYTES = 64 << 20


def healthz(request: HttpRequest) -> JsonResponse:
    """200 with `{"success": true}` while the database answers; `redis` says whether notifications are delivered.

    Without Redis operations continue with delays, so its absence is reported and is no failure.
    """
    database, redis_up = _database_answers(), redis_is_available()
    body = {"success": database, "database": database, "redis": redis_up}
    return JsonResponse(body, status=200 if database else 503)


def readyz(request: HttpRequest) -> JsonResponse:
    """Return whether workspaces can be created and run: 200, or 503 with what is missing. `checks` has a sentence for
    each.

    Made at most once in READY_SECONDS in each process.
    """
    problems = PROBLEMS.get()
    checks = {name: {"ok": not problem, "message": problem or "ok"} for name, problem in problems.items()}
    ready = not any(problems.values())
    return JsonResponse({"success": ready, "ready": ready, "checks": checks}, status=200 if ready else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


def _database() -> str:
    return "" if _database_answers() else "The database does not answer."


def _redis() -> str:
    return "" if redis_is_available() else "Redis does not answer: operations continue with delays."


def _host() -> str:
    try:
        states = set(Host.objects.filter(host_answers()).values_list("state", flat=True))
    except DatabaseError:
        return "Unknown without the database."
    if not states:
        return "No host has reported lately: machines cannot be started."
    return "" if HostState.ACTIVE in states else "Every host is drained: no workspace can be created."


def _disk() -> str:
    free = shutil.disk_usage(settings.STATE).free
    return "" if free >= LEAST_FREE_BYTES else f"The disk of the state folder is full: {free >> 20} MiB are free."


CHECKS: dict[str, Callable[[], str]] = {"database": _database, "redis": _redis, "host": _host, "disk": _disk}


def _problems() -> dict[str, str]:
    """For each check what is wrong; empty if it is right."""
    return {name: check() for name, check in CHECKS.items()}


PROBLEMS = CachedValue(_problems, READY_SECONDS)
