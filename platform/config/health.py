"""`GET /healthz`: whether this process can serve. Needs no credential and reveals nothing else."""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse

from common.redis import redis_is_available


def healthz(request: HttpRequest) -> JsonResponse:
    """200 with `{"success": true}` while the database answers; `redis` says whether notifications are delivered.

    Without Redis operations continue with delays, so its absence is reported and is no failure.
    """
    database, redis_up = _database_answers(), redis_is_available()
    body = {"success": database, "database": database, "redis": redis_up}
    return JsonResponse(body, status=200 if database else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True
