"""`GET /healthz` and `GET /readyz`. Neither needs a credential, and neither shows more than its words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import NamedTuple

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse

from common.cached_value import CachedValue
from common.redis import redis_is_available
from vmbackend.host_states import UNREACHABLE, HostState, is_control_plane_fault
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
    found = PROBLEMS.get()
    checks = {name: {"ok": not one.problem, "message": one.problem or one.note} for name, one in found.items()}
    ready = not any(one.problem for one in found.values())
    return JsonResponse({"success": ready, "ready": ready, "checks": checks}, status=200 if ready else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


class Finding(NamedTuple):
    """The finding of a check: a problem, empty if all is right, and otherwise a word on what is not."""

    problem: str
    note: str = "ok"


def _database() -> Finding:
    return Finding("" if _database_answers() else "The database does not answer.")


def _redis() -> Finding:
    return Finding("" if redis_is_available() else "Redis does not answer: operations continue with delays.")


def _hosts() -> Finding:
    try:
        hosts = list(Host.objects.exclude(state=HostState.GONE).order_by("name"))
        is_fault = is_control_plane_fault(Host.objects.exclude(state=HostState.GONE))
    except DatabaseError:
        return Finding("Unknown without the database.")
    silent = ", ".join(host.name for host in hosts if host.shown_state == UNREACHABLE)
    note = f"Unreachable: {silent}." if silent else "ok"
    if is_fault:
        note += " They fell silent at once: look at the database and the network first."
    if any(host.takes_new for host in hosts):
        return Finding("", note)
    if any(host.answers for host in hosts):
        return Finding(" ".join(["No host is active: no workspace can be created.", *([note] if silent else [])]))
    return Finding(" ".join(["No host has reported lately: machines cannot be started.", *([note] if silent else [])]))


def _disk() -> Finding:
    free = shutil.disk_usage(settings.STATE).free
    full = f"The disk of the state folder is full: {free >> 20} MiB are free."
    return Finding("" if free >= LEAST_FREE_BYTES else full)


CHECKS: dict[str, Callable[[], Finding]] = {"database": _database, "redis": _redis, "hosts": _hosts, "disk": _disk}


def _findings() -> dict[str, Finding]:
    return {name: check() for name, check in CHECKS.items()}


PROBLEMS = CachedValue(_findings, READY_SECONDS)
